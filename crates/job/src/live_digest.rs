//! The digest of the keys that a running etcd serves at a revision. Keys are read in pages that fit into the memory of etcd
//! and of this process.

use etcd_operator_etcd::client::{Client, Key, Page};
use etcd_operator_etcd::error::{Cause, Error};
use etcd_operator_etcd::id::Revision;
use etcd_operator_snapshot::content::{Digest, ServedKey};

/// The target size of a page in bytes, if the size of the largest key is known.
const PAGE_BYTES: u64 = 64 << 20;
/// The largest number of keys in a page.
const MAX_KEYS: u64 = 10_000;
/// The overhead of one key on the wire in bytes.
const KEY_OVERHEAD: u64 = 128;
/// The largest number of keys in a page if their sizes are unknown. With etcd's default `--max-request-bytes`, even the
/// largest keys make a page that etcd can serve.
const CONSERVATIVE_KEYS: u32 = 100;
/// The largest response to such a page in bytes. It is held twice while it is decoded, and the memory of the pod is limited.
const CONSERVATIVE_BYTES: usize = 64 << 20;

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

/// Where pages of keys are read.
trait Pages {
    /// At most so many keys behind one, in a response of at most so many bytes.
    fn page(
        &self,
        after: Option<&[u8]>,
        at: Revision,
        limits: PageLimits,
    ) -> impl Future<Output = Result<Page, Error>> + Send;
}

impl Pages for Client {
    fn page(
        &self,
        after: Option<&[u8]>,
        at: Revision,
        limits: PageLimits,
    ) -> impl Future<Output = Result<Page, Error>> + Send {
        Self::page(self, after, at, limits.keys, limits.bytes)
    }
}

/// Reads every key at a revision and computes the digest. A page above the limit is read again with fewer keys.
pub async fn read_digest(client: &Client, at: Revision, limits: PageLimits) -> Result<Digest, Error> {
    digest_pages(client, at, limits).await
}

async fn digest_pages(pages: &impl Pages, at: Revision, limits: PageLimits) -> Result<Digest, Error> {
    let mut digest = Digest::default();
    let mut after: Option<Vec<u8>> = None;
    let mut now = limits;
    loop {
        let page = match pages.page(after.as_deref(), at, now).await {
            Err(Error {
                cause: Cause::TooLarge(_),
                ..
            }) if now.keys > 1 => {
                now.keys = now.keys.div_ceil(4);
                continue;
            }
            page => page?,
        };
        if size(&page) <= limits.bytes / 4 {
            now.keys = now.keys.saturating_mul(2).min(limits.keys);
        }
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

/// The size of the keys of a page, with their values, in bytes.
fn size(page: &Page) -> usize {
    page.keys.iter().map(|key| key.key.len() + key.value.len()).sum()
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
    use std::sync::Mutex;

    use super::*;

    /// Keys by the sizes of their values, and how many each page had.
    #[derive(Default)]
    struct Served {
        values: Vec<usize>,
        pages: Mutex<Vec<usize>>,
    }

    impl Pages for Served {
        async fn page(&self, after: Option<&[u8]>, _: Revision, limits: PageLimits) -> Result<Page, Error> {
            let read = after.map_or(0, |key| usize::from(u16::from_be_bytes([key[0], key[1]])) + 1);
            let rest = &self.values[read..];
            let sizes = &rest[..rest.len().min(usize::try_from(limits.keys).expect("it fits"))];
            if sizes.iter().sum::<usize>() > limits.bytes {
                return Err(Error {
                    endpoint: "http://orders-0:2379".parse().expect("a URL"),
                    call: "Range",
                    cause: Cause::TooLarge(limits.bytes),
                });
            }
            self.pages.lock().expect("a list").push(sizes.len());
            let keys = (read..).zip(sizes).map(|(number, size)| Key {
                key: u16::try_from(number).expect("it is small").to_be_bytes().to_vec(),
                value: vec![7; *size],
                created: 1,
                modified: 1,
                version: 1,
                lease: 0,
            });
            Ok(Page {
                keys: keys.collect(),
                has_more: sizes.len() < rest.len(),
            })
        }
    }

    #[tokio::test]
    async fn large_values_of_unknown_size_are_read_in_smaller_pages_and_all_of_them() {
        const LARGE: usize = 5 << 20;
        let mut served = Served::default();
        served.values.extend([10; 150]);
        served.values.extend([LARGE; 40]);
        served.values.extend([10; 900]);
        let digest = digest_pages(&served, Revision(1), PageLimits::conservative()).await;
        assert_eq!(digest.expect("a digest").keys(), served.values.len() as u64);
        let pages = served.pages.lock().expect("a list").clone();
        assert_eq!(pages.iter().sum::<usize>(), served.values.len());
        // More than 64 MiB are never held, and small keys come by the hundred again.
        assert!(pages.len() < 30, "{pages:?}");
        assert_eq!(pages.iter().filter(|keys| **keys == 100).count(), 8, "{pages:?}");
        served.values = vec![65 << 20];
        let error = digest_pages(&served, Revision(1), PageLimits::conservative()).await;
        assert_eq!(
            error.expect_err("it is too large").cause,
            Cause::TooLarge(64 << 20)
        );
    }

    #[test]
    fn a_page_has_many_small_keys_or_a_single_large_one() {
        for (largest, keys) in [(10, 10_000), ((1 << 20) - KEY_OVERHEAD, 64), (1 << 30, 1)] {
            assert_eq!(PageLimits::for_largest_key(largest).keys, keys, "{largest}");
        }
    }
}
