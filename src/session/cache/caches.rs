//! A model's key-value caches: one per form of keys, values and weights.

use super::allocation::CacheAllocation;
use super::key_value_cache::{CacheOwner, KeyValueCache};
use crate::config::RopeScaling;
use crate::error::{Error, ErrorCode, Result};
use crate::lower::InferenceOptions;
use crate::session::decode::interventions::Interventions;
use crate::session::model::Model;
use crate::session::weights::check_format;
use std::ops::Deref;
use std::rc::Rc;

/// A cache with room for a call, and what the call changes on the way to the logits.
#[derive(Debug)]
pub(in crate::session) struct PreparedCache {
    cache: Rc<KeyValueCache>,
    interventions: Option<Interventions>,
}

impl Deref for PreparedCache {
    type Target = KeyValueCache;

    fn deref(&self) -> &KeyValueCache {
        &self.cache
    }
}

impl PreparedCache {
    /// Writes the call's interventions where the plans read them, before what is submitted next.
    pub fn intervene(&self, model: &Model, allocation: &CacheAllocation) -> Result<()> {
        match &self.interventions {
            Some(own) => self.cache.intervene(&**model.gpu(), allocation, own),
            None => Ok(()),
        }
    }
}

impl Model {
    /// A cache with room for `tokens` tokens of context, for a form of keys and values and one of
    /// weights, which are packed as they are now.
    pub(in crate::session) async fn prepare_inference(
        &self,
        tokens: usize,
        options: InferenceOptions,
    ) -> Result<PreparedCache> {
        self.weights.buffers()?;
        check_format(self.layout(), options.weights)?;
        self.check_length(tokens)?;
        let find = |id| self.interventions.borrow().find(id);
        let interventions = options.interventions.map(find).transpose()?;
        let cache = self.cache(options.form());
        let mut reserved = cache.reserve(&self.weights, tokens).await;
        let short = |error: &Error| error.code == ErrorCode::OutOfMemory;
        if reserved.as_ref().is_err_and(short) && self.give_up_caches_but(options.form()) {
            reserved = cache.reserve(&self.weights, tokens).await;
        }
        self.weights.buffers()?;
        reserved?;
        cache.pack(&self.weights, &self.token_throughput).await?;
        Ok(PreparedCache { cache, interventions })
    }

    pub(in crate::session) fn check_length(&self, tokens: usize) -> Result<()> {
        let most = self.config().max_position_embeddings;
        if tokens <= most {
            return Ok(());
        }
        Err(Error::tokens(format!(
            "{tokens} tokens of context are more than {}, {most}{}; give a shorter text, such as its last tokens",
            self.config().spelled("max_position_embeddings"),
            match self.config().rope.scaling {
                RopeScaling::Dynamic { .. } =>
                    ", and dynamic RoPE would have other angles for each such length",
                _ => "",
            }
        )))
    }

    fn cache(&self, options: InferenceOptions) -> Rc<KeyValueCache> {
        let mut caches = self.caches.borrow_mut();
        if let Some(cache) = caches.iter().find(|cache| cache.options == options) {
            return Rc::clone(cache);
        }
        caches.push(Rc::new(KeyValueCache::new(options)));
        Rc::clone(&caches[caches.len() - 1])
    }

    /// Frees the caches of other options; false where there is none. A generation reads its text again.
    pub(in crate::session) fn give_up_caches_but(&self, options: InferenceOptions) -> bool {
        let mut caches = self.caches.borrow_mut();
        let before = caches.len();
        caches.retain(|cache| cache.options == options);
        caches.len() < before
    }

    /// Gives a cache to a text, of which it may hold the first tokens already: how many of them it does.
    /// Matrices are packed as they are now. The caller holds the cache's [lock](KeyValueCache::lock).
    ///
    /// # Arguments
    /// `reused`: most tokens whose keys and values need not be computed again.
    pub(in crate::session) async fn begin_text(
        &self,
        cache: &PreparedCache,
        text: &[u32],
        reused: usize,
    ) -> Result<(CacheOwner, usize)> {
        cache.pack(&self.weights, &self.token_throughput).await?;
        cache.set_rope_for(&self.weights, text.len()).await?;
        let start = match reused {
            0 => 0,
            most => cache.reusable(&self.weights, &cache.interventions, text, most)?,
        };
        let by = (self.next_epoch(), cache.interventions.clone());
        Ok((cache.begin_text(&self.weights, by, start, text.len()), start))
    }
}
