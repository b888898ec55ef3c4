//! The digest of what a server serves at a revision, read page by page in pages that fit into memory: etcd's and ours.

use etcd_operator_etcd::client::{Client, Key};
use etcd_operator_etcd::error::Error;
use etcd_operator_etcd::id::Revision;
use etcd_operator_snapshot::content::{Digest, ServedKey};

/// The most bytes of keys and values in one page, where the largest of them is known.
const PAGE: u64 = 64 << 20;
/// The most keys in one page.
const MOST: u64 = 10_000;
/// What stands around keys and values on the wire, for each.
const AROUND: u64 = 128;
/// How many keys go into one page where nothing is known of them: even of the largest that etcd takes unless it is told
/// otherwise they are no more than it bears.
const CAREFUL: u32 = 100;
/// The most bytes of such a page that are taken.
const TAKEN: usize = 256 << 20;

/// How large pages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    keys: u32,
    bytes: usize,
}

impl Pages {
    /// For keys of which the largest, with its value, has so many bytes.
    pub fn of_largest(largest: u64) -> Self {
        let keys = (PAGE / (largest + AROUND)).clamp(1, MOST);
        // More than that cannot be what was said.
        let bytes = PAGE.max(largest).saturating_mul(2);
        Self {
            keys: u32::try_from(keys).unwrap_or(1),
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        }
    }

    /// For keys of which nothing is known.
    pub fn careful() -> Self {
        Self {
            keys: CAREFUL,
            bytes: TAKEN,
        }
    }
}

/// Reads every key as it was at a revision.
pub async fn digest(client: &Client, at: Revision, pages: Pages) -> Result<Digest, Error> {
    let mut digest = Digest::default();
    let mut behind: Option<Vec<u8>> = None;
    loop {
        let page = client
            .page(behind.as_deref(), at, pages.keys, pages.bytes)
            .await?;
        for key in &page.keys {
            digest.add(&served(key));
        }
        let last = page.keys.into_iter().next_back();
        let Some(last) = last.filter(|_| page.has_more) else {
            return Ok(digest);
        };
        behind = Some(last.key);
    }
}

fn served(key: &Key) -> ServedKey<'_> {
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
    fn a_page_has_many_small_keys_or_one_that_is_too_large() {
        for (largest, keys) in [(10, 10_000), ((1 << 20) - AROUND, 64), (1 << 30, 1)] {
            assert_eq!(Pages::of_largest(largest).keys, keys, "{largest}");
        }
    }
}
