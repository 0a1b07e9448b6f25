//! A model's key-value caches: one per form of keys, values and weights.

use super::key_value_cache::{CacheOwner, KeyValueCache};
use crate::config::RopeScaling;
use crate::error::{Error, ErrorCode, Result};
use crate::lower::InferenceOptions;
use crate::session::model::Model;
use crate::session::weights::check_format;
use std::rc::Rc;

impl Model {
    /// A cache with room for `tokens` tokens of context, for a form of keys and values and one of
    /// weights, which are packed as they are now.
    pub(in crate::session) async fn prepare_inference(
        &self,
        tokens: usize,
        options: InferenceOptions,
    ) -> Result<Rc<KeyValueCache>> {
        self.weights.buffers()?;
        check_format(self.layout(), options.weights)?;
        self.check_length(tokens)?;
        let cache = self.cache(options);
        let mut reserved = cache.reserve(&self.weights, tokens).await;
        let short = |error: &Error| error.code == ErrorCode::OutOfMemory;
        if reserved.as_ref().is_err_and(short) && self.give_up_caches_but(options) {
            reserved = cache.reserve(&self.weights, tokens).await;
        }
        self.weights.buffers()?;
        reserved?;
        cache.pack(&self.weights, &self.token_throughput).await?;
        Ok(cache)
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
        cache: &KeyValueCache,
        text: &[u32],
        reused: usize,
    ) -> Result<(CacheOwner, usize)> {
        cache.pack(&self.weights, &self.token_throughput).await?;
        cache.turn(&self.weights, text.len()).await?;
        let start = match reused {
            0 => 0,
            most => cache.reusable(&self.weights, text, most)?,
        };
        Ok((cache.begin_text(&self.weights, self.next_epoch(), start, text.len()), start))
    }
}
