//! Checks of uploads: an object is complete or absent, and no unfinished uploads remain.

use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};

use super::{
    MissingFeature, StoreUnderTest, assert_no_upload, read_all, split_into_parts, test_bytes, unique_key,
    upload_object, upload_parts,
};
use crate::backend::ByteRange;
use crate::clock;
use crate::error::{Class, UploadRemains};
use crate::key::Key;

pub(super) async fn an_upload_in_parts_reads_back_identically(tested: &StoreUnderTest) {
    let (key, whole) = (unique_key("object"), test_bytes(tested.part_size * 2 + 17));
    let etag = upload_object(tested, &key, &whole).await;
    let meta = tested
        .store
        .head(&key)
        .await
        .expect("metadata")
        .expect("the object exists");
    assert_eq!((meta.size, &meta.etag), (tested.part_size * 2 + 17, &etag));
    assert!(
        read_all(&tested.store, &key, ByteRange::ALL).await == whole,
        "the same bytes come back"
    );
    assert_no_upload(tested, &key).await;
}

pub(super) async fn parts_can_be_uploaded_in_any_order_and_replaced(tested: &StoreUnderTest) {
    let (key, whole) = (unique_key("object"), test_bytes(tested.part_size * 2 + 5));
    let pieces = split_into_parts(&whole, tested.part_size);
    let upload = tested
        .store
        .begin(&key, tested.part_size)
        .await
        .expect("the upload begins");
    let other = test_bytes(tested.part_size).slice(1..);
    upload
        .upload_part(2, other)
        .await
        .expect("a part that is replaced");
    let mut parts = Vec::new();
    for number in [3u32, 1, 2] {
        let piece = pieces[usize::try_from(number - 1).expect("small")].clone();
        parts.push(upload.upload_part(number, piece).await.expect("a part"));
    }
    upload.complete(parts).await.expect("completed");
    assert!(
        read_all(&tested.store, &key, ByteRange::ALL).await == whole,
        "in the order of their numbers"
    );
}

pub(super) async fn one_short_part_and_an_empty_one_make_an_object(tested: &StoreUnderTest) {
    for whole in [test_bytes(3), Bytes::new()] {
        let key = unique_key("object");
        upload_object(tested, &key, &whole).await;
        let meta = tested
            .store
            .head(&key)
            .await
            .expect("metadata")
            .expect("the object exists");
        assert_eq!(meta.size, u64::try_from(whole.len()).expect("a length"));
        assert_eq!(read_all(&tested.store, &key, ByteRange::ALL).await, whole);
    }
}

pub(super) async fn an_object_appears_only_when_it_is_complete(tested: &StoreUnderTest) {
    let (key, whole) = (unique_key("object"), test_bytes(tested.part_size + 1));
    let upload = tested
        .store
        .begin(&key, tested.part_size)
        .await
        .expect("the upload begins");
    let parts = upload_parts(&upload, &whole).await;
    assert_eq!(tested.store.head(&key).await, Ok(None));
    assert_eq!(tested.store.list(key.as_str()).await, Ok(Vec::new()));
    upload.complete(parts).await.expect("completed");
    assert!(tested.store.head(&key).await.expect("metadata").is_some());
}

pub(super) async fn an_aborted_upload_leaves_nothing(tested: &StoreUnderTest) {
    let key = unique_key("object");
    let upload = tested
        .store
        .begin(&key, tested.part_size)
        .await
        .expect("the upload begins");
    upload_parts(&upload, &test_bytes(tested.part_size + 1)).await;
    upload.abort().await.expect("aborted");
    assert_eq!(tested.store.head(&key).await, Ok(None));
    assert_no_upload(tested, &key).await;
}

pub(super) async fn a_dropped_upload_is_aborted(tested: &StoreUnderTest) {
    if tested.missing(MissingFeature::ListUploads) {
        return;
    }
    let key = unique_key("object");
    let upload = tested
        .store
        .begin(&key, tested.part_size)
        .await
        .expect("the upload begins");
    upload_parts(&upload, &test_bytes(1)).await;
    drop(upload);
    let gone = async {
        while !tested
            .store
            .list_unfinished(key.as_str())
            .await
            .expect("a list")
            .is_empty()
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone)
        .await
        .expect("aborted in the background");
}

pub(super) async fn an_upload_replaces_an_older_object(tested: &StoreUnderTest) {
    let key = unique_key("object");
    let first = upload_object(tested, &key, &test_bytes(10)).await;
    let second = upload_object(tested, &key, &test_bytes(11)).await;
    assert_ne!(first, second);
    assert_eq!(
        read_all(&tested.store, &key, ByteRange::ALL).await,
        test_bytes(11)
    );
}

pub(super) async fn parts_with_a_gap_are_refused_and_the_upload_is_aborted(tested: &StoreUnderTest) {
    let key = unique_key("object");
    let upload = tested
        .store
        .begin(&key, tested.part_size)
        .await
        .expect("the upload begins");
    let mut parts = upload_parts(&upload, &test_bytes(tested.part_size * 2 + 1)).await;
    parts.remove(1);
    let error = upload.complete(parts).await.expect_err("refused");
    assert_eq!(
        (error.class, error.upload_remains),
        (Class::Unsupported, Some(UploadRemains::Aborted))
    );
    assert_eq!(tested.store.head(&key).await, Ok(None));
    assert_no_upload(tested, &key).await;
}

pub(super) async fn only_own_uploads_older_than_the_deadline_are_swept(tested: &StoreUnderTest) {
    if tested.missing(MissingFeature::ListUploads) {
        return;
    }
    let folder = format!("conformance-{}", clock::random_token());
    let mut uploads = Vec::new();
    for name in ["ours/a", "ours/b", "others/c"] {
        let key = Key::new(format!("{folder}/{name}")).expect("a valid name");
        let upload = tested
            .store
            .begin(&key, tested.part_size)
            .await
            .expect("the upload begins");
        upload_parts(&upload, &test_bytes(1)).await;
        uploads.push(upload);
    }
    let left = async || -> usize { tested.store.list_unfinished(&folder).await.expect("a list").len() };
    let past = clock::now() - SignedDuration::from_hours(1);
    let future: Timestamp = clock::now() + SignedDuration::from_hours(1);
    let ours = format!("{folder}/ours/");
    let is_a = |name: &str| name.ends_with("/a");
    assert_eq!(
        tested
            .store
            .sweep(&ours, past, |_| true)
            .await
            .expect("swept")
            .aborted
            .len(),
        0
    );
    assert_eq!(left().await, 3, "younger than the deadline");
    let swept = tested.store.sweep(&ours, future, is_a).await.expect("swept");
    assert_eq!(swept.aborted, [format!("{folder}/ours/a")]);
    assert_eq!(left().await, 2, "known by the caller only");
    tested.store.sweep(&ours, future, |_| true).await.expect("swept");
    assert_eq!(left().await, 1, "below the prefix only");
    for upload in uploads {
        upload.abort().await.expect("aborted, or swept already");
    }
}
