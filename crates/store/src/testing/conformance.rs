//! What every store must do, whichever protocol it speaks. Each check works below a prefix of its own and leaves nothing
//! that another could trip over.

mod objects;
mod uploads;

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;

use crate::clock;
use crate::key::Key;
use crate::port::{Etag, Part, Span};
use crate::store::Store;
use crate::upload::Upload;

/// A store to be checked.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The store.
    pub store: Store,
    /// The size of parts; real stores want 5 MiB at least.
    pub part_size: u64,
    /// How many objects a list of several pages has.
    pub many: usize,
    /// What this store cannot do, or its server does not play: checks of it are left out.
    pub lacks: &'static [Lack],
}

/// What a store may be without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// A list of uploads under way.
    ListOfUploads,
    /// A condition that holds against writes at the same time.
    ConditionsAtOnce,
}

impl Bench {
    fn lacks(&self, lack: Lack) -> bool {
        self.lacks.contains(&lack)
    }
}

/// One check.
pub struct Check {
    /// What it shows, as a sentence.
    pub name: &'static str,
    run: for<'a> fn(&'a Bench) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
}

macro_rules! checks {
    ($($module:ident::$name:ident),+ $(,)?) => {
        /// All checks.
        pub const CHECKS: &[Check] = &[$(Check {
            name: stringify!($name),
            run: |bench| Box::pin($module::$name(bench)),
        }),+];
    };
}

checks![
    uploads::what_is_uploaded_in_parts_is_read_back,
    uploads::parts_may_come_in_any_order_and_twice,
    uploads::one_short_part_and_an_empty_one_make_an_object,
    uploads::an_object_appears_only_when_it_is_complete,
    uploads::an_aborted_upload_leaves_nothing,
    uploads::a_dropped_upload_is_aborted,
    uploads::an_upload_replaces_an_older_object,
    uploads::parts_with_a_gap_are_refused_and_nothing_is_left,
    objects::ranges_are_exact,
    objects::another_writing_is_not_read_by_an_old_etag,
    objects::names_with_odd_characters_come_back_as_they_are,
    objects::a_list_has_what_begins_so_and_nothing_else,
    objects::a_list_of_many_pages_is_whole,
    objects::deleting_is_final_and_may_be_repeated,
    objects::an_object_is_created_once,
    objects::one_of_many_creates_at_the_same_time_wins,
    objects::what_is_not_there_is_said_to_be_not_there,
    uploads::only_own_leftovers_older_than_the_deadline_are_swept,
];

impl Check {
    /// Runs it; it panics where the store is wrong.
    pub async fn run(&self, bench: &Bench) {
        (self.run)(bench).await;
    }
}

/// Runs all checks, one after the other, and returns how many there were.
pub async fn check_all(bench: &Bench) -> usize {
    for check in CHECKS {
        println_name(check.name);
        check.run(bench).await;
    }
    CHECKS.len()
}

#[expect(
    clippy::print_stdout,
    reason = "the last name printed is the check that failed"
)]
fn println_name(name: &str) {
    println!("check: {name}");
}

fn key(name: &str) -> Key {
    Key::new(format!("conformance-{}/{name}", clock::token())).expect("a good name")
}

/// Bytes in which no stretch equals another.
fn bytes(length: u64) -> Bytes {
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

fn pieces(whole: &Bytes, size: u64) -> Vec<Bytes> {
    let size = usize::try_from(size).expect("a small size");
    let mut rest = whole.clone();
    let mut pieces = Vec::new();
    while rest.len() > size {
        pieces.push(rest.split_to(size));
    }
    pieces.push(rest);
    pieces
}

async fn upload(bench: &Bench, key: &Key, whole: &Bytes) -> Etag {
    let upload = bench.store.begin(key, bench.part_size).await.expect("begun");
    let parts = hand_over(&upload, whole).await;
    let stored = upload.complete(parts).await.expect("completed");
    assert_eq!(stored.size, u64::try_from(whole.len()).expect("a length"));
    stored.etag.expect("who writes here may look")
}

async fn hand_over(upload: &Upload, whole: &Bytes) -> Vec<Part> {
    let mut parts = Vec::new();
    for (piece, number) in pieces(whole, upload.part_size()).into_iter().zip(1..) {
        parts.push(upload.part(number, piece).await.expect("a part"));
    }
    parts
}

async fn read(store: &Store, key: &Key, span: Span) -> Bytes {
    let mut opened = store.open(key, span, None).await.expect("opened");
    let mut whole = BytesMut::new();
    while let Some(piece) = opened.body.next().await {
        whole.extend_from_slice(&piece.expect("a piece"));
    }
    assert_eq!(u64::try_from(whole.len()).expect("a length"), opened.length);
    whole.freeze()
}

async fn assert_no_upload(bench: &Bench, key: &Key) {
    if !bench.lacks(Lack::ListOfUploads) {
        let begun = bench.store.all_begun(key.as_str()).await.expect("a list");
        assert_eq!(begun, [], "nothing of the upload is left");
    }
}
