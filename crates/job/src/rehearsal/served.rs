//! The digest of what a server serves at a revision, read page by page in pages that fit into memory: etcd's and ours.

use etcd_operator_etcd::client::{Client, Key};
use etcd_operator_etcd::id::Revision;
use etcd_operator_snapshot::content::live::Live;
use etcd_operator_snapshot::content::{Digest, Served};

use super::failed;
use crate::failure::Failure;

/// The most bytes of keys and values in one page, whichever keys they are.
const PAGE: u64 = 64 << 20;
/// The most keys in one page.
const MOST: u64 = 10_000;
/// What stands around keys and values on the wire, for each.
const AROUND: u64 = 128;

/// Reads every key as it was at a revision.
pub(super) async fn digest(client: &Client, at: Revision, expected: &Live) -> Result<Digest, Failure> {
    let most = most(expected.largest);
    // More than that cannot be what was streamed.
    let bytes = usize::try_from(PAGE.max(expected.largest).saturating_mul(2)).unwrap_or(usize::MAX);
    let mut digest = Digest::default();
    let mut behind: Option<Vec<u8>> = None;
    loop {
        let page = client
            .page(behind.as_deref(), at, most, bytes)
            .await
            .map_err(|error| failed(format!("the restored etcd cannot be read: {error}")))?;
        for key in &page.keys {
            digest.add(&served(key));
        }
        let Some(last) = page.keys.into_iter().next_back().filter(|_| page.has_more) else {
            return Ok(digest);
        };
        if digest.keys() > expected.keys {
            return Err(failed(format!(
                "the restored etcd serves more than the {} keys that were streamed",
                expected.keys
            )));
        }
        behind = Some(last.key);
    }
}

/// How many keys go into one page if each is as large as the largest.
fn most(largest: u64) -> u32 {
    let keys = (PAGE / (largest + AROUND)).clamp(1, MOST);
    u32::try_from(keys).unwrap_or(1)
}

fn served(key: &Key) -> Served<'_> {
    Served {
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
        assert_eq!(most(10), 10_000);
        assert_eq!(most((1 << 20) - AROUND), 64);
        assert_eq!(most(1 << 30), 1);
    }
}
