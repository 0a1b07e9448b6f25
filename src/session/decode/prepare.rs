//! The kernels of a generation, compiled before it is asked for.

use super::batch::{batch_shape, check_count};
use super::generate::GenerateOptions;
use super::lookup::ROWS;
use super::sampler::check_alternatives;
use crate::error::Result;
use crate::kernels::Kernel;
use crate::lower::{BatchedRows, Inference, SampleChoices};
use crate::plan::Plan;
use crate::session::cache::allocation::capacity_for;
use crate::session::compile::{compile_ahead, distinct};
use crate::session::model::Model;
use crate::session::progress::Progress;
use crate::session::weights::check_format;

/// Kernels that a GPU's host compiles at a time. An end of the call does not stop these.
const SIDE_BY_SIDE: usize = 16;

impl Model {
    /// Compiles what a generation with these options compiles first. It allocates nothing, and the model stays as it is.
    ///
    /// # Arguments
    /// `options`: where they are `stepwise`, something is added to the logits.
    /// `sequences`: texts that are generated together; 1: a [`Generation`](crate::session::Generation).
    /// `tokens`: of prompt and text. A large GPU has further kernels for long ones.
    ///
    /// # Errors
    /// `invalid-options`, `invalid-tokens`, `limit-exceeded`, `freed`, `device-lost`, `aborted`.
    pub async fn prepare_generation(
        &self,
        options: &GenerateOptions,
        [sequences, tokens]: [usize; 2],
        progress: Progress<'_>,
    ) -> Result<()> {
        self.weights.buffers()?;
        check_count("sequences is", sequences)?;
        self.check_length(tokens)?;
        let kernels = self.kernels_of(options, sequences, tokens)?;
        compile_ahead(&**self.gpu(), &kernels, SIDE_BY_SIDE, progress).await
    }

    /// Each distinct kernel once.
    fn kernels_of(
        &self,
        options: &GenerateOptions,
        sequences: usize,
        tokens: usize,
    ) -> Result<Vec<Kernel>> {
        let config = self.config();
        let most = config.max_position_embeddings;
        check_format(self.layout(), options.weights)?;
        check_alternatives(options.alternatives, config.vocab_size)?;
        let form = options.inference().form();
        let of = |shape| Inference::new(self.gpu().capabilities(), self.layout(), shape, form);
        let one = of(capacity_for(tokens, most).into());
        let plans = one.plans()?;
        let slots = &plans.sample.slots;
        let mut more: Vec<Plan> = vec![];
        let biased = options.stepwise || !options.bias.is_empty();
        let choices = SampleChoices { biased, likeliest: options.alternatives };
        if choices != SampleChoices::default() {
            more.push(one.sample_plan(choices, slots)?);
        }
        if options.prompt_lookup {
            more.push(one.batched_plans(BatchedRows::OfOne(ROWS), slots)?.pass);
        }
        if sequences > 1 {
            let together = of(batch_shape(sequences, tokens, most));
            let plans = together.batched_plans(BatchedRows::OfTexts(sequences), slots)?;
            more.push(plans.pass);
            more.extend(plans.texts);
        }
        Ok(distinct(plans.all().into_iter().chain(&more)))
    }
}
