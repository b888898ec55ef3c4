//! The conformance checks for stores of every protocol. Each check works below its own prefix and leaves
//! nothing behind that could disturb another.

mod objects;
mod uploads;

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;

use crate::backend::{ByteRange, Etag, Part};
use crate::clock;
use crate::key::Key;
use crate::store::Store;
use crate::upload::Upload;

/// A store under test.
#[derive(Clone, Debug)]
pub struct StoreUnderTest {
    /// The store.
    pub store: Store,
    /// The part size. Real stores require at least 5 MiB.
    pub part_size: u64,
    /// The number of objects that fills several pages of a listing.
    pub object_count: usize,
    /// Features that this store does not have or its test server does not emulate. Their checks are skipped.
    pub missing: &'static [MissingFeature],
}

/// A feature that a store may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingFeature {
    /// Listing unfinished uploads.
    ListUploads,
    /// Conditional writes that hold against concurrent writers.
    AtomicCreate,
}

impl StoreUnderTest {
    fn missing(&self, lack: MissingFeature) -> bool {
        self.missing.contains(&lack)
    }
}

/// One check.
pub struct Check {
    /// The name of the check: a sentence about what holds.
    pub name: &'static str,
    run: for<'a> fn(&'a StoreUnderTest) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
}

macro_rules! checks {
    ($($module:ident::$name:ident),+ $(,)?) => {
        /// All checks.
        pub const CHECKS: &[Check] = &[$(Check {
            name: stringify!($name),
            run: |tested| Box::pin($module::$name(tested)),
        }),+];
    };
}

checks![
    uploads::an_upload_in_parts_reads_back_identically,
    uploads::parts_can_be_uploaded_in_any_order_and_replaced,
    uploads::one_short_part_and_an_empty_one_make_an_object,
    uploads::an_object_appears_only_when_it_is_complete,
    uploads::an_aborted_upload_leaves_nothing,
    uploads::a_dropped_upload_is_aborted,
    uploads::an_upload_replaces_an_older_object,
    uploads::parts_with_a_gap_are_refused_and_the_upload_is_aborted,
    objects::ranges_are_exact,
    objects::a_replaced_object_is_not_read_with_the_old_etag,
    objects::names_with_special_characters_round_trip,
    objects::a_listing_returns_exactly_the_names_with_the_prefix,
    objects::a_listing_of_many_pages_is_complete,
    objects::deleting_is_final_and_idempotent,
    objects::an_object_is_created_once,
    objects::one_of_many_concurrent_creates_wins,
    objects::a_missing_object_is_reported_as_missing,
    uploads::only_own_uploads_older_than_the_deadline_are_swept,
];

impl Check {
    /// Runs the check. Panics if it fails.
    pub async fn run(&self, tested: &StoreUnderTest) {
        (self.run)(tested).await;
    }
}

/// Runs all checks in order and returns their number.
pub async fn check_all(tested: &StoreUnderTest) -> usize {
    for check in CHECKS {
        print_name(check.name);
        check.run(tested).await;
    }
    CHECKS.len()
}

#[expect(
    clippy::print_stdout,
    reason = "the last name printed is the check that failed"
)]
fn print_name(name: &str) {
    println!("check: {name}");
}

fn unique_key(name: &str) -> Key {
    Key::new(format!("conformance-{}/{name}", clock::random_token())).expect("a valid name")
}

/// Generates bytes without repeating sequences.
fn test_bytes(length: u64) -> Bytes {
    let mut made = BytesMut::new();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..length {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        made.extend_from_slice(&state.to_le_bytes()[7..]);
    }
    made.freeze()
}

fn split_into_parts(whole: &Bytes, size: u64) -> Vec<Bytes> {
    let size = usize::try_from(size).expect("a small size");
    let mut rest = whole.clone();
    let mut pieces = Vec::new();
    while rest.len() > size {
        pieces.push(rest.split_to(size));
    }
    pieces.push(rest);
    pieces
}

async fn upload_object(tested: &StoreUnderTest, key: &Key, whole: &Bytes) -> Etag {
    let upload = tested
        .store
        .begin(key, tested.part_size)
        .await
        .expect("the upload begins");
    let parts = upload_parts(&upload, whole).await;
    let stored = upload.complete(parts).await.expect("completed");
    assert_eq!(stored.size, u64::try_from(whole.len()).expect("a length"));
    stored.etag.expect("the identity may read metadata")
}

async fn upload_parts(upload: &Upload, whole: &Bytes) -> Vec<Part> {
    let mut parts = Vec::new();
    for (piece, number) in split_into_parts(whole, upload.part_size()).into_iter().zip(1..) {
        parts.push(upload.upload_part(number, piece).await.expect("a part"));
    }
    parts
}

async fn read_all(store: &Store, key: &Key, range: ByteRange) -> Bytes {
    let mut opened = store.open(key, range, None).await.expect("opened");
    let mut whole = BytesMut::new();
    while let Some(piece) = opened.body.next().await {
        whole.extend_from_slice(&piece.expect("a piece"));
    }
    assert_eq!(u64::try_from(whole.len()).expect("a length"), opened.length);
    whole.freeze()
}

async fn assert_no_upload(tested: &StoreUnderTest, key: &Key) {
    if !tested.missing(MissingFeature::ListUploads) {
        let unfinished = tested.store.list_unfinished(key.as_str()).await.expect("a list");
        assert_eq!(unfinished, [], "no unfinished upload is left");
    }
}
