//! The digest of the keys that a running etcd serves at a revision. Keys are read in pages that fit into the memory of etcd
//! and of this process.

use etcd_operator_etcd::client::{Client, Key};
use etcd_operator_etcd::error::Error;
use etcd_operator_etcd::id::Revision;
use etcd_operator_snapshot::content::{Digest, ServedKey};

/// The target size of a page in bytes, if the size of the largest key is known.
const PAGE_BYTES: u64 = 64 << 20;
/// The largest number of keys in a page.
const MAX_KEYS: u64 = 10_000;
/// The overhead of one key on the wire in bytes.
const KEY_OVERHEAD: u64 = 128;
/// The number of keys in a page if their sizes are unknown. With etcd's default `--max-request-bytes`, even the largest keys
/// make a page that etcd can serve.
const CONSERVATIVE_KEYS: u32 = 100;
/// The largest response to such a page in bytes.
const CONSERVATIVE_BYTES: usize = 256 << 20;

/// The limits of a page of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    keys: u32,
    bytes: usize,
}

impl PageLimits {
    /// Limits for keys of which the largest, with its value, has this many bytes.
    pub fn for_largest_key(largest: u64) -> Self {
        let keys = (PAGE_BYTES / (largest + KEY_OVERHEAD)).clamp(1, MAX_KEYS);
        // A larger response contradicts the size of the largest key.
        let bytes = PAGE_BYTES.max(largest).saturating_mul(2);
        Self {
            keys: u32::try_from(keys).unwrap_or(1),
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        }
    }

    /// Limits for keys of unknown size.
    pub fn conservative() -> Self {
        Self {
            keys: CONSERVATIVE_KEYS,
            bytes: CONSERVATIVE_BYTES,
        }
    }
}

/// Reads every key at a revision and computes the digest.
pub async fn read_digest(client: &Client, at: Revision, limits: PageLimits) -> Result<Digest, Error> {
    let mut digest = Digest::default();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = client
            .page(after.as_deref(), at, limits.keys, limits.bytes)
            .await?;
        for key in &page.keys {
            digest.add(&to_digest_input(key));
        }
        let last = page.keys.into_iter().next_back();
        let Some(last) = last.filter(|_| page.has_more) else {
            return Ok(digest);
        };
        after = Some(last.key);
    }
}

fn to_digest_input(key: &Key) -> ServedKey<'_> {
    ServedKey {
        key: &key.key,
        value: &key.value,
        created: key.created,
        modified: key.modified,
        version: key.version,
        lease: key.lease,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_many_small_keys_or_a_single_large_one() {
        for (largest, keys) in [(10, 10_000), ((1 << 20) - KEY_OVERHEAD, 64), (1 << 30, 1)] {
            assert_eq!(PageLimits::for_largest_key(largest).keys, keys, "{largest}");
        }
    }
}
