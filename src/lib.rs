//! tinyloom trains and runs small transformer language models on WebGPU: natively on Vulkan, Metal
//! and DX12, and compiled to WebAssembly inside a browser tab. The npm package `tinyloom` is built
//! from this crate.
//!
//! Everything works at WebGPU's default limits, without optional features. Where an adapter has more,
//! the choice of kernels uses it.
//!
//! # Example
//!
//! ```
//! use std::rc::Rc;
//! use tinyloom::config::ModelConfig;
//! use tinyloom::data::Batch;
//! use tinyloom::gpu::{DeviceRequest, Gpu, WgpuDevice};
//! use tinyloom::session::{Model, Trainer, TrainerOptions, NO_PROGRESS};
//!
//! # pollster::block_on(async {
//! let gpu: Rc<dyn Gpu> = WgpuDevice::open(&DeviceRequest::default()).await?;
//! let config = ModelConfig::from_json(
//!     r#"{"vocab_size": 256, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
//!         "num_attention_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": true}"#,
//! )?;
//! let model = Model::create(&gpu, config, 0, NO_PROGRESS).await?;
//! let options = TrainerOptions { tokens_per_step: 64, ..TrainerOptions::default() };
//! let trainer = Trainer::create(&model, options, NO_PROGRESS).await?;
//! let tokens: Vec<u32> = b"to be or not to be".iter().copied().map(u32::from).collect();
//! let batch = Batch::next_tokens(tokens);
//! let first = trainer.step(&batch).await?;
//! let second = trainer.step(&batch).await?;
//! assert!(second.loss < first.loss);
//! # Ok::<(), tinyloom::error::Error>(())
//! # })?;
//! # Ok::<(), tinyloom::error::Error>(())
//! ```
//!
//! `examples/train.rs` is a whole program: a dataset, a training loop and a generated text.
//!
//! # Where to look
//!
//! - [`session`] has what users hold: [`session::Model`], [`session::Trainer`],
//!   [`session::Adapter`], [`session::Generation`], and operations on tensors.
//! - [`config`] and [`checkpoint`] read and write the files of Hugging Face models.
//! - [`data`] packs token ids into batches.
//! - [`gpu`] opens a device. It stands behind the trait [`gpu::Gpu`].
//! - [`caps`], [`kernels`] and [`plan`] choose kernels and list their dispatches as plain data,
//!   without a GPU.
//! - [`error`] has the one error type. Each error has a stable code.
//!
//! Calls on the GPU are futures that run on one thread. They need no executor of their own; the
//! example blocks on them with `pollster`.

#![warn(missing_debug_implementations)]

pub mod checkpoint;
pub mod schedule;
pub mod session;
#[cfg(target_arch = "wasm32")]
pub mod web;

/// The GPU behind a small trait: buffers, compiled plans, replays, readbacks, errors.
pub mod gpu {
    pub use tinyloom_gpu::{
        AdapterFacts, BufferCopy, BufferId, Counters, DeviceRequest, Gpu, LimitsRequest,
        LocalFuture, Pending, PlanId, PowerPreference, Region, Replay, RequestedFeatures,
        WgpuDevice, create_checked, queue_checked, submit_checked,
    };
}

pub use tinyloom_kernels::{caps, kernels, plan};
pub use tinyloom_model::{config, data, error};

use tinyloom_kernels::{lower, ops, optim};
use tinyloom_model::{arch, decimal, graph, params, random};
