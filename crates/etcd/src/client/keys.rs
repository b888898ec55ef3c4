//! Reading all keys as they were at a revision, page by page.

use super::{Call, Client};
use crate::error::Error;
use crate::id::Revision;
use crate::wire::{RangeRequest, RangeResponse};

/// The end of a range that has none.
const NO_END: [u8; 1] = [0];
/// The first key there can be.
const FIRST: [u8; 1] = [0];

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision at which it was created.
    pub created: i64,
    /// The revision at which it was last modified.
    pub modified: i64,
    /// How often it was modified since.
    pub version: i64,
    /// The lease it hangs on; 0 for none.
    pub lease: i64,
}

/// Some keys, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The keys.
    pub keys: Vec<Key>,
    /// Whether there are more behind them.
    pub has_more: bool,
}

impl Client {
    /// At most so many keys behind one, or from the first on, as they were at a revision. What the member has by itself
    /// is read: others are not asked. An answer of more than `bytes` is an error.
    pub async fn page(
        &self,
        behind: Option<&[u8]>,
        at: Revision,
        most: u32,
        bytes: usize,
    ) -> Result<Page, Error> {
        let mut key = behind.unwrap_or_default().to_vec();
        key.extend(FIRST);
        let question = RangeRequest {
            key,
            range_end: NO_END.to_vec(),
            limit: most.into(),
            revision: at.0,
            serializable: true,
            count_only: false,
        };
        let limit = self.limits.call;
        let answer: RangeResponse = self.call_for(Call::RANGE, question, limit, bytes).await?;
        let keys = answer.kvs.into_iter().map(|pair| Key {
            key: pair.key,
            value: pair.value,
            created: pair.create_revision,
            modified: pair.mod_revision,
            version: pair.version,
            lease: pair.lease,
        });
        Ok(Page {
            keys: keys.collect(),
            has_more: answer.more,
        })
    }
}
