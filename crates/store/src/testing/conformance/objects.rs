//! Checks of objects: ranges, names, listings, deletion, and concurrent creation.

use bytes::Bytes;
use futures::future::join_all;
use jiff::SignedDuration;

use super::{MissingFeature, StoreUnderTest, read_all, test_bytes, unique_key, upload_object};
use crate::backend::ByteRange;
use crate::clock;
use crate::error::Class;
use crate::key::Key;
use crate::store::CreateOutcome;

pub(super) async fn ranges_are_exact(tested: &StoreUnderTest) {
    let (key, whole) = (unique_key("object"), test_bytes(1000));
    upload_object(tested, &key, &whole).await;
    for (from, to) in [
        (0, Some(1)),
        (0, Some(1000)),
        (10, Some(990)),
        (999, None),
        (500, None),
        (990, Some(2000)),
    ] {
        let end = usize::try_from(to.unwrap_or(1000).min(1000)).expect("small");
        let start = usize::try_from(from).expect("small");
        let got = read_all(&tested.store, &key, ByteRange { from, to }).await;
        assert_eq!(got, whole.slice(start..end), "{from} to {to:?}");
    }
    let behind = ByteRange { from: 1000, to: None };
    let error = tested
        .store
        .open(&key, behind, None)
        .await
        .expect_err("behind the end");
    assert_eq!(error.class, Class::Unsupported, "{error}");
}

pub(super) async fn a_replaced_object_is_not_read_with_the_old_etag(tested: &StoreUnderTest) {
    let key = unique_key("object");
    let old = upload_object(tested, &key, &test_bytes(10)).await;
    tested
        .store
        .open(&key, ByteRange::ALL, Some(&old))
        .await
        .expect("still the same");
    upload_object(tested, &key, &test_bytes(12)).await;
    let error = tested
        .store
        .open(&key, ByteRange::ALL, Some(&old))
        .await
        .expect_err("replaced");
    assert_eq!(error.class, Class::Changed, "{error}");
}

pub(super) async fn names_with_special_characters_round_trip(tested: &StoreUnderTest) {
    let folder = format!("conformance-{}", clock::random_token());
    let names = [
        "etcd.backup_v3_2019-12-15-15:57:59",
        "a b/c+d&e=f",
        "ä€/🦀",
        "100%25/x%2Fy",
        "q'~!@$,;()*[]{}",
        "...dots/..x",
    ];
    for (name, size) in names.iter().zip(1..) {
        let key = Key::new(format!("{folder}/{name}")).expect("a valid name");
        upload_object(tested, &key, &test_bytes(size)).await;
        assert_eq!(
            read_all(&tested.store, &key, ByteRange::ALL).await,
            test_bytes(size),
            "{name}"
        );
    }
    let listed = tested.store.list(&format!("{folder}/")).await.expect("listed");
    let mut expected: Vec<String> = names.iter().map(|name| format!("{folder}/{name}")).collect();
    expected.sort();
    let listed: Vec<String> = listed.into_iter().map(|entry| entry.name).collect();
    assert_eq!(listed, expected);
}

pub(super) async fn a_listing_returns_exactly_the_names_with_the_prefix(tested: &StoreUnderTest) {
    let folder = format!("conformance-{}", clock::random_token());
    let name = |name: &str| format!("{folder}/{name}");
    for (object, size) in [("etcd_v1", 1), ("etcd2_v1", 2), ("etcd/deep/er", 3), ("other", 4)] {
        let key = Key::new(name(object)).expect("a valid name");
        tested
            .store
            .create(&key, test_bytes(size))
            .await
            .expect("created");
    }
    let list = async |prefix: &str| -> Vec<String> {
        let listed = tested.store.list(&name(prefix)).await.expect("listed");
        listed.into_iter().map(|entry| entry.name).collect()
    };
    assert_eq!(list("etcd_").await, [name("etcd_v1")]);
    assert_eq!(
        list("etcd").await,
        [name("etcd/deep/er"), name("etcd2_v1"), name("etcd_v1")]
    );
    assert_eq!(list("etcd/").await, [name("etcd/deep/er")]);
    assert_eq!(
        list("other").await,
        [name("other")],
        "also what is named exactly so"
    );
    assert_eq!(list("nothing").await, Vec::<String>::new());
    let entry = tested.store.list(&name("other")).await.expect("listed").remove(0);
    assert_eq!(entry.size, 4);
    let age = clock::now().duration_since(entry.modified.expect("a time"));
    assert!(
        age.abs() < SignedDuration::from_mins(10),
        "the store's clock: {age:?} ago"
    );
}

pub(super) async fn a_listing_of_many_pages_is_complete(tested: &StoreUnderTest) {
    let folder = format!("conformance-{}", clock::random_token());
    let numbers: Vec<usize> = (0..tested.object_count).collect();
    for some in numbers.chunks(16) {
        let creates = some.iter().map(async |number| {
            let key = Key::new(format!("{folder}/{number:06}")).expect("a valid name");
            tested
                .store
                .create(&key, Bytes::from_static(b"x"))
                .await
                .expect("created");
        });
        join_all(creates).await;
    }
    let listed = tested.store.list(&folder).await.expect("listed");
    assert_eq!(listed.len(), tested.object_count);
    assert!(
        listed
            .iter()
            .zip(0..)
            .all(|(entry, number): (_, usize)| entry.name == format!("{folder}/{number:06}"))
    );
    let first = tested.store.list_page(&folder, None).await.expect("a page");
    assert!(
        first.items.len() < tested.object_count && first.next.is_some(),
        "there is more than one page"
    );
}

pub(super) async fn deleting_is_final_and_idempotent(tested: &StoreUnderTest) {
    let key = unique_key("object");
    upload_object(tested, &key, &test_bytes(10)).await;
    tested.store.delete(&key).await.expect("deleted");
    assert_eq!(tested.store.head(&key).await, Ok(None));
    tested.store.delete(&key).await.expect("deleted again");
}

pub(super) async fn an_object_is_created_once(tested: &StoreUnderTest) {
    let key = unique_key("manifest.json");
    let create = async |body: &'static [u8]| tested.store.create(&key, Bytes::from_static(body)).await;
    assert_eq!(create(b"first").await, Ok(CreateOutcome::Created));
    assert_eq!(create(b"second").await, Ok(CreateOutcome::AlreadyExists));
    assert_eq!(create(b"first").await, Ok(CreateOutcome::AlreadyExists));
    assert_eq!(
        tested.store.read_small(&key, 100).await,
        Ok(Bytes::from_static(b"first"))
    );
    let error = tested
        .store
        .read_small(&key, 3)
        .await
        .expect_err("larger than expected");
    assert_eq!(error.class, Class::Corrupt);
}

pub(super) async fn one_of_many_concurrent_creates_wins(tested: &StoreUnderTest) {
    if tested.missing(MissingFeature::AtomicCreate) {
        return;
    }
    let key = unique_key("manifest.json");
    let creates = (0..8u8).map(async |number| {
        let body = Bytes::from(vec![number; 100]);
        tested.store.create(&key, body).await.expect("an answer")
    });
    let won: Vec<usize> = join_all(creates)
        .await
        .into_iter()
        .enumerate()
        .filter(|(_, creation)| *creation == CreateOutcome::Created)
        .map(|(number, _)| number)
        .collect();
    let [winner] = won.as_slice() else {
        panic!("exactly one creation must win, not {won:?}")
    };
    let content = tested.store.read_small(&key, 1000).await.expect("read");
    assert!(
        content.iter().all(|byte| usize::from(*byte) == *winner),
        "the object has the content of the winner"
    );
}

pub(super) async fn a_missing_object_is_reported_as_missing(tested: &StoreUnderTest) {
    let key = unique_key("nothing");
    assert_eq!(tested.store.head(&key).await, Ok(None));
    let error = tested
        .store
        .open(&key, ByteRange::ALL, None)
        .await
        .expect_err("nothing to read");
    assert_eq!(error.class, Class::NotFound, "{error}");
    assert!(error.to_string().contains(key.as_str()), "{error}");
}
