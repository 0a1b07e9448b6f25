//! Calls of attention, judged: what a user asks for, held to what the kernels can do.

use super::attention_plan::{AttentionKey, View};
use super::mask::MaskShape;
use super::mask_options::MaskOptions;
use super::refuse::{Shown, Sizes};
use super::tensor::expect_own_buffer;
use super::{Operation, OperationKey, Places, Role, TENSORS, TensorView};
use crate::error::{Error, Result};
use crate::kernels::{DenseMask, Element};

/// What is asked of attention over tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttentionOperation {
    Forward,
    Backward,
    /// One query row an item.
    Decode,
}

impl AttentionOperation {
    const fn name(self) -> &'static str {
        match self {
            Self::Forward => "attention.forward",
            Self::Backward => "attention.backward",
            Self::Decode => "attention.decode",
        }
    }

    /// What it writes.
    const fn written(self) -> &'static [Role] {
        match self {
            Self::Forward | Self::Decode => &[Role::Output, Role::Logsumexp],
            Self::Backward => &[Role::DQuery, Role::DKey, Role::DValue],
        }
    }

    /// What it reads besides query, key and value, in the order of messages.
    const fn also_read(self) -> &'static [Role] {
        match self {
            Self::Forward | Self::Decode => &[],
            Self::Backward => &[Role::Output, Role::Logsumexp, Role::DOutput],
        }
    }
}

/// A call as its user makes it. Of its values nothing is known but their types.
#[derive(Clone, Debug)]
pub struct AttentionCall<'a> {
    pub operation: AttentionOperation,
    /// By role. What is written and not given is to be made.
    pub tensors: [Option<TensorView>; TENSORS],
    /// Factor on the scores; by default 1 / √head_dim.
    pub scale: Option<f64>,
    pub soft_cap: Option<f64>,
    pub mask: MaskOptions<'a>,
}

impl AttentionCall<'_> {
    /// The operation.
    ///
    /// # Errors
    /// `invalid-options`, which names the value, what is allowed and what to do; `out-of-memory` for a
    /// mask that the module's memory has no room for.
    pub fn judge(self) -> Result<Operation> {
        let place = self.operation.name();
        self.judge_numbers()?;
        self.mask.judge_alone(place)?;
        let mut key = self.sizes()?;
        for &role in self.operation.also_read() {
            self.expect_size(place, role, &key)?;
        }
        let shape = MaskShape {
            batch: key.batch,
            heads: key.heads,
            query_rows: key.query_rows,
            key_rows: key.key_rows,
        };
        let mut mask = self.mask.judge(place, shape)?;
        key.dense = mask.dense_kind();
        let (buffers, made) = self.buffers(&key)?;
        let mut geometry = key.geometry(key.key_rows, &self.views(&key)?);
        if self.operation == AttentionOperation::Decode {
            mask.end_at_last_key(shape);
            key.key_rows = key.key_rows.next_power_of_two();
        }
        let backward = self.operation == AttentionOperation::Backward;
        let mut words = mask.words(shape, backward, &mut geometry)?;
        if let Some(dense) = &self.mask.dense {
            let from = geometry.dense[3] as usize;
            dense.fill(place, shape.key_rows, &mut words[from..])?;
        }
        let (key, places) = (OperationKey::Attention(key), Places::Attention(geometry));
        Ok(Operation { key, places, mask: words, buffers, made })
    }

    fn judge_numbers(&self) -> Result<()> {
        let place = self.operation.name();
        for (name, value, [low, high]) in
            [("scale", self.scale, [1e-6, 1e6]), ("softCap", self.soft_cap, [1e-3, 1e6])]
        {
            if let Some(value) = value
                && !(low..=high).contains(&value)
            {
                let (value, low, high) = (Shown(value), Shown(low), Shown(high));
                return Err(Error::options(format!(
                    "{place}: {name} is {value}; give a number of at least {low} and at most {high}, \
                     or leave it out"
                )));
            }
        }
        Ok(())
    }

    fn tensor(&self, role: Role) -> Result<&TensorView> {
        let missing = || Error::internal(format!("a call without its {}", role.name()));
        self.tensors[role as usize].as_ref().ok_or_else(missing)
    }

    /// The sizes of a call, once query, key and value fit each other.
    fn sizes(&self) -> Result<AttentionKey> {
        let place = self.operation.name();
        let [query, key, value] =
            [self.tensor(Role::Query)?, self.tensor(Role::Key)?, self.tensor(Role::Value)?];
        let refuse = |message: String| Err(Error::options(format!("{place}: {message}")));
        if self.operation == AttentionOperation::Decode && query.shape.get(2) != Some(&1) {
            return refuse(format!(
                "query has the shape {}; give one query per batch item, [batch, heads, 1, head_dim], or use \
                 attention.forward",
                Sizes(&query.shape)
            ));
        }
        let [batch, heads, query_rows, head_dim] = query.four_axes(&format!("{place}: query"))?;
        let [key_batch, kv_heads, key_rows, key_dim] = key.four_axes(&format!("{place}: key"))?;
        value.four_axes(&format!("{place}: value"))?;
        if !head_dim.is_multiple_of(4) || head_dim > 256 {
            return refuse(format!("head_dim is {head_dim}; give a multiple of 4 up to 256"));
        }
        if key_batch != batch || key_dim != head_dim {
            return refuse(format!(
                "key has the shape {} and query {}; give the same batch and head_dim",
                Sizes(&key.shape),
                Sizes(&query.shape)
            ));
        }
        if !heads.is_multiple_of(kv_heads) {
            return refuse(format!(
                "query has {heads} heads and key {kv_heads}; give a multiple of the key's"
            ));
        }
        let element = query.element;
        key.expect(&format!("{place}: key"), &key.shape, element)?;
        value.expect(&format!("{place}: value"), &key.shape, element)?;
        Ok(AttentionKey {
            operation: self.operation,
            batch,
            heads,
            kv_heads,
            query_rows,
            key_rows,
            head_dim,
            element,
            soft_cap: self.soft_cap.map(|cap| cap as f32),
            scale: self.scale.map(|scale| scale as f32),
            dense: DenseMask::None,
        })
    }

    /// Holds a tensor to the shape and element of its role.
    fn expect_size(&self, place: &str, role: Role, key: &AttentionKey) -> Result<()> {
        let what = format!("{place}: {}", role.name());
        let of_query = shape_of(key, role);
        match role {
            Role::Logsumexp => self.tensor(role)?.expect(&what, &of_query[..3], Element::F32),
            _ => self.tensor(role)?.expect(&what, &of_query, key.element),
        }
    }

    /// The buffers of the tensors that are given, and the roles of those to be made.
    fn buffers(&self, key: &AttentionKey) -> Result<([Option<u32>; TENSORS], Vec<Role>)> {
        let place = format!("{}: into", self.operation.name());
        let read = [Role::Query, Role::Key, Role::Value];
        let read = read.iter().chain(self.operation.also_read());
        let mut bound: Vec<(Role, u32)> =
            read.map(|&role| Ok((role, self.tensor(role)?.id))).collect::<Result<_>>()?;
        let mut made = vec![];
        for &role in self.operation.written() {
            let Some(given) = &self.tensors[role as usize] else {
                made.push(role);
                continue;
            };
            self.expect_size(&place, role, key)?;
            expect_own_buffer(&place, (role, given), &bound)?;
            bound.push((role, given.id));
        }
        let mut buffers = [None; TENSORS];
        bound.iter().for_each(|&(role, id)| buffers[role as usize] = Some(id));
        Ok((buffers, made))
    }

    /// The views of the tensors, those to be made among them.
    fn views(&self, key: &AttentionKey) -> Result<Vec<(Role, View)>> {
        let place = self.operation.name();
        let mut views = vec![];
        let inputs = [Role::Query, Role::Key, Role::Value];
        let others = self.operation.also_read().iter().chain(self.operation.written());
        for &role in inputs.iter().chain(others) {
            let what = format!("{place}: {}", role.name());
            match (&self.tensors[role as usize], role) {
                (Some(given), Role::Logsumexp) => given.whole(&what)?,
                (None, Role::Logsumexp) => {}
                (Some(given), _) => views.push((role, given.vectors(&what)?)),
                (None, _) => views.push((role, View::in_order(shape_of(key, role)))),
            }
        }
        Ok(views)
    }
}

/// The shape of the tensors of a role; a logsumexp lacks the last axis.
fn shape_of(key: &AttentionKey, role: Role) -> [usize; 4] {
    match role {
        Role::Key | Role::Value | Role::DKey | Role::DValue => {
            [key.batch, key.kv_heads, key.key_rows, key.head_dim]
        }
        _ => [key.batch, key.heads, key.query_rows, key.head_dim],
    }
}
