//! Checks the batch of a micro-step, and writes its words to the GPU.

use super::{PlanChoice, Trainer};
use crate::data::{Batch, write_document_ends, write_sorted_by_token};
use crate::error::{Error, Result};
use crate::kernels::STRIP;
use crate::plan::{Buffer, count_tiles};

impl Trainer {
    /// Whether the batch has more tiles of attention than the plan for short documents has room for.
    pub(super) fn is_long(&self, batch: &Batch) -> bool {
        self.installed.long.is_some()
            && count_tiles(&batch.documents, &mut [], &mut []) > self.plans.tiles.unwrap_or(0)
    }

    pub(super) fn check(&self, batch: &Batch) -> Result<()> {
        self.check_rows(batch)?;
        if batch.counted() == 0 {
            return Err(Error::tokens(
                "every target is 0xffffffff (ignored); a step needs at least one that counts",
            ));
        }
        Ok(())
    }

    /// Checks a batch whatever its targets are.
    pub(super) fn check_rows(&self, batch: &Batch) -> Result<()> {
        let config = self.model.config();
        batch.validate(config.vocab_size, self.plans.micro_step.tokens)?;
        let most = config.max_position_embeddings;
        let longest = (0u32..)
            .zip(&batch.documents)
            .map(|(i, start)| (i - start) as usize + 1)
            .max()
            .unwrap_or(0);
        if longest > most {
            return Err(Error::tokens(format!(
                "a document of {longest} tokens is longer than {}, {most}; cut it, or give the dataset a smaller \
                 sequenceLength",
                config.spelled("max_position_embeddings")
            )));
        }
        let short = self.model.layout().architecture.short_tokens();
        if longest > short {
            return Err(Error::tokens(format!(
                "a document of {longest} tokens is longer than original_max_position_embeddings, {short}: longrope has \
                 other angles there, and a step has one kind; cut it, or give the dataset a smaller sequenceLength"
            )));
        }
        Ok(())
    }

    pub(super) fn write_batch(&self, batch: &Batch) -> Result<()> {
        let padded = self.plans.batch.padded;
        let strips = self.plans.micro_step.tokens.div_ceil(STRIP);
        let long = self.is_long(batch);
        let tiles = if long { self.plans.long_tiles } else { self.plans.tiles };
        let table_words = tiles.map_or(0, |tiles| strips + tiles);
        // Each step overwrites all words that its plan reads.
        let mut all = self.batch_words.borrow_mut();
        all.resize(5 * padded + table_words, 0);
        let (words, tables) = all.split_at_mut(5 * padded);
        fill(words, padded, batch)?;
        if !tables.is_empty() {
            let (before, strip_of) = tables.split_at_mut(strips);
            before.fill(0);
            count_tiles(&batch.documents, before, strip_of);
        }
        self.batch_tokens.set(batch.len());
        // A step of another loss changes this afterwards.
        self.batch_plan.replace(PlanChoice { steered: None, long });
        let (buffer, resources) = (self.buffer(Buffer::Batch)?, self.resources.borrow());
        // Where no kernel reads documents there is no room for them.
        let room = resources.as_ref().and_then(|resources| resources.bytes_of(Buffer::Batch));
        let words = all.len().min(room.unwrap_or(0) as usize / 4);
        self.model.gpu().write(buffer, 0, bytemuck::cast_slice(&all[..words]))
    }
}

/// Fills the five parts of a batch, `padded` words each, as [`BatchLayout`](crate::plan::BatchLayout) has them.
pub(in crate::session) fn fill(words: &mut [u32], padded: usize, batch: &Batch) -> Result<()> {
    let Batch { tokens, targets, documents } = batch;
    let mut parts = words.chunks_exact_mut(padded).map(|whole| {
        let (part, padding) = whole.split_at_mut(tokens.len());
        padding.fill(0);
        part
    });
    let mut part = || parts.next().ok_or_else(|| Error::internal("a batch has five parts"));
    part()?.copy_from_slice(tokens);
    part()?.copy_from_slice(targets);
    let (order, starts, ends) = (part()?, part()?, part()?);
    write_sorted_by_token(tokens, order, ends);
    starts.copy_from_slice(documents);
    write_document_ends(documents, ends);
    Ok(())
}
