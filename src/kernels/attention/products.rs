//! Attention's backward pass by plain products: probabilities and score gradients of some heads at a time lie in
//! scratch, and sums of products over them are the gradients.

use super::matrix_backward::attention_backward_halves;
use super::operands::{common, key_value_constants, scratch_rows};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::compose::{Composer, Grid, Kernel, read, read_write, shader, uniform};
use crate::kernels::limits::check_storage;
use crate::kernels::shape::{AttentionScratch, AttentionShape, KeyValueOwner};
use crate::kernels::spec::KernelSpec;
