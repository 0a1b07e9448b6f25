//! The header of a safetensors file: every byte range that is asked for lies in the file, and as long as its tensor.
//! The input is the file's beginning: its length as eight bytes, then the header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tinyloom::checkpoint::CheckpointReader;

fuzz_target!(|bytes: &[u8]| {
    let Some((length, header)) = bytes.split_first_chunk() else { return };
    let file_length = u64::from_le_bytes(*length);
    let tensors = [
        ("model.embed_tokens.weight".to_owned(), vec![8, 4]),
        ("model.norm.weight".to_owned(), vec![4]),
        ("lm_head.weight".to_owned(), vec![8, 4]),
    ];
    let mut reader = CheckpointReader::new(&tensors);
    let Ok(wanted) = reader.add_file("model.safetensors", header, file_length) else { return };
    let mut values = vec![];
    for one in wanted {
        assert!(8 + header.len() as u64 <= one.begin && one.begin <= one.end);
        assert!(one.end <= file_length, "{one:?} is beyond {file_length}");
        let piece = vec![0x3c; (one.end - one.begin) as usize];
        assert!(piece.len() <= 4 * 32, "{one:?} is larger than its tensor");
        reader.decode(&one.name, 0, &piece, &mut values).expect("a piece that was asked for");
        assert!(values.len() <= 32);
    }
    let _ = reader.finish();
});
