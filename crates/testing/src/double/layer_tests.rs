//! What layers may have, where no family has it: RoPE of their own or none, norms before blocks, after them, both,
//! none.

use super::Double;
use super::batch_tests::same_as_alone;
use super::generate_tests::{logits, rest, texts};
use super::plan_tests::trains;
use super::tests::{Pair, named, software};
use crate::arch::{FAMILIES, Family, Rope};
use crate::session::{GenerateOptions, Generation};
use crate::twins::check::assert_close;
use crate::twins::top_logits_forward;
use pollster::block_on;

/// Llama with other layers.
pub(super) static OPTIONS: Family = Family {
    names: ["options", "Options"],
    like: Some(FAMILIES[0]),
    fields: &[],
    refused: &[],
    gguf: None,
    describe: |model| {
        let mut of = (FAMILIES[0].describe)(model);
        let mut layers = of.layers.iter_mut().map(|layer| (&mut layer.attention, &mut layer.mlp));
        let mut next = || match layers.next() {
            Some((Some(attention), Some(mlp))) => (attention, mlp),
            _ => panic!("a layer of Llama has both blocks"),
        };
        // Norms after the blocks alone, and angles of its own.
        let (attention, mlp) = next();
        of.ropes.push(Rope::plain(attention.attention.head_dim, 50.0));
        attention.norms.behind = attention.norms.before.take();
        mlp.norms.behind = mlp.norms.before.take();
        attention.attention.rope = Some(1);
        next().0.attention.rope = None;
        // No norms, then all of them.
        let (attention, mlp) = next();
        let norms = [attention.norms.before.take(), mlp.norms.before.take()];
        let (attention, mlp) = next();
        [attention.norms.behind, mlp.norms.behind] = norms;
        of
    },
};

const LAYERS: &str = r#"{"model_type":"options","vocab_size":64,"hidden_size":32,
    "intermediate_size":48,"num_hidden_layers":4,"num_attention_heads":2,"num_key_value_heads":1,
    "head_dim":16,"initializer_range":0.2,"max_position_embeddings":512}"#;

#[test]
fn layers_of_each_kind_train_as_the_twin() {
    trains(&Double::floor(), LAYERS, false, [40, 23]);
    trains(&software(), LAYERS, true, [40, 23]);
    trains(&named("NVIDIA"), LAYERS, false, [40, 23]);
}

/// Logits after each decoded token are those of the whole text as one batch: of the model's prompts, and of the twin.
#[test]
fn layers_of_each_kind_decode_as_they_train() {
    decodes_as_it_trains(LAYERS);
}

/// On a device of least features, and on a large GPU.
pub(super) fn decodes_as_it_trains(config: &str) {
    for double in [Double::floor(), named("NVIDIA")] {
        let pair = Pair::new(&double, config);
        let model = &pair.model;
        let options = GenerateOptions {
            max_tokens: 20,
            temperature: 0.0,
            alternatives: 32,
            ..GenerateOptions::default()
        };
        let prompt = [1, 2, 3];
        let drawn = rest(block_on(Generation::start(model, &prompt, options.clone())).unwrap());
        assert_eq!(drawn.len(), 20);
        for (text, drawn) in texts(&drawn).zip(&drawn) {
            let all = pair.reference().logits(&text, &vec![0; text.len()]);
            let last = &all[all.len() - 64..];
            assert_close("prompt", &logits(model, &text), last, 2e-5, 2e-5);
            let expected = top_logits_forward(last, 32);
            let of = |values: &[(u32, f32)]| values.iter().map(|(t, _)| *t).collect::<Vec<_>>();
            assert_eq!(
                of(&drawn.alternatives),
                expected.iter().map(|(t, _)| *t).collect::<Vec<_>>()
            );
            let told: Vec<f32> = drawn.alternatives.iter().map(|(_, p)| *p).collect();
            let wanted: Vec<f64> = expected.iter().map(|(_, p)| *p).collect();
            assert_close("log-probabilities", &told, &wanted, 2e-5, 0.0);
        }
        let prompts = [prompt.to_vec(), vec![7, 8], vec![9; 12]].map(|it| (it, options.clone()));
        let together = same_as_alone(model, &prompts);
        assert_eq!(together[0], drawn.iter().map(|drawn| drawn.token).collect::<Vec<_>>());
    }
}
