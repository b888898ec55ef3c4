//! Reading all keys as they were at a revision, page by page.

use super::Client;
use super::maintenance::RANGE;
use crate::error::{Cause, Error};
use crate::id::Revision;
use crate::rejection::Rejection;
use etcd_client::GetOptions;

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

/// Keys in their order, and whether there are more after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The keys.
    pub keys: Vec<Key>,
    /// Whether there are more behind them.
    pub has_more: bool,
}

/// Turns the code by which tonic rejects an answer above the size limit into [`Cause::TooLarge`]. The errors for which
/// etcd uses that code have texts of their own, and are left as they are.
fn explain_size(error: Error, bytes: usize) -> Error {
    match error.cause {
        Cause::Rejected(Rejection::OutOfRange(_)) => Error {
            cause: Cause::TooLarge(bytes),
            ..error
        },
        _ => error,
    }
}

impl Client {
    /// At most `most` keys after the key `behind`, or from the first on, as they were at a revision. It is a
    /// serializable read: the other members are not asked. An answer of more than `bytes` is not read:
    /// [`Cause::TooLarge`].
    pub async fn page(
        &self,
        behind: Option<&[u8]>,
        at: Revision,
        most: u32,
        bytes: usize,
    ) -> Result<Page, Error> {
        let mut key = behind.unwrap_or_default().to_vec();
        key.extend(FIRST);
        let options = GetOptions::new()
            .with_from_key()
            .with_limit(most.into())
            .with_revision(at.0)
            .with_serializable();
        let mut kv = self.etcd.kv_client().max_decoding_message_size(bytes);
        let answer = self.call(RANGE, kv.get(key, Some(options))).await;
        let answer = answer.map_err(|error| explain_size(error, bytes))?.0;
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
