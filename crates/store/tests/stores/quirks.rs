//! Tests of misbehaving stores. No object may be replaced or mixed up, and no listing may run forever.

use bytes::{Bytes, BytesMut};
use etcd_operator_store::backend::ByteRange;
use etcd_operator_store::{Class, CreateOutcome, Key, Operation};
use futures::StreamExt as _;

use crate::support::store;
use etcd_operator_store::testing::fake::{Dialect, Fake, Quirk};

const ALL: [Dialect; 4] = [Dialect::S3, Dialect::Oss, Dialect::Gcs, Dialect::Abs];

fn key() -> Key {
    Key::new("etcd/orders").expect("a name")
}

#[tokio::test]
async fn a_store_that_ignores_conditions_is_checked_before_a_create() {
    let fake = Fake::start(Dialect::S3, None).await;
    let store = store(Dialect::S3, &fake, None).await;
    fake.state().quirk = Some(Quirk::IgnoresConditions);
    let first = store.create(&key(), Bytes::from_static(b"first")).await;
    let second = store.create(&key(), Bytes::from_static(b"second")).await;
    assert_eq!(
        (first, second),
        (Ok(CreateOutcome::Created), Ok(CreateOutcome::AlreadyExists))
    );
    assert_eq!(
        store.read_small(&key(), 100).await,
        Ok(Bytes::from_static(b"first"))
    );
}

#[tokio::test]
async fn a_resumed_read_never_mistakes_the_whole_object_for_the_rest() {
    for dialect in ALL {
        let fake = Fake::start(dialect, None).await;
        let store = store(dialect, &fake, None).await;
        let whole: Bytes = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        store.create(&key(), whole.clone()).await.expect("created");
        {
            let mut state = fake.state();
            state.truncate_after = Some(70_000);
            state.quirk = Some(Quirk::IgnoresRanges);
        }
        let mut opened = store.open(&key(), ByteRange::ALL, None).await.expect("opened");
        let mut got = BytesMut::new();
        let error = loop {
            match opened.body.next().await.expect("the read must fail") {
                Ok(piece) => got.extend_from_slice(&piece),
                Err(error) => break error,
            }
        };
        assert_eq!(error.operation, Operation::Read);
        assert!(
            whole.starts_with(&got) && got.len() <= 70_000,
            "{dialect:?}: the bytes are a prefix of the object, {} long",
            got.len()
        );
        let range = ByteRange {
            from: 10,
            to: Some(20),
        };
        store
            .open(&key(), range, None)
            .await
            .expect_err("more than the requested range");
    }
}

#[tokio::test]
async fn a_listing_with_repeated_pages_is_stopped() {
    for dialect in ALL {
        let fake = Fake::start(dialect, None).await;
        let store = store(dialect, &fake, None).await;
        {
            let mut state = fake.state();
            for number in 0..20 {
                state.put(&format!("etcd/{number:02}"), Bytes::new(), None);
            }
            state.quirk = Some(Quirk::RepeatsPages);
        }
        let error = store.list("etcd/").await.expect_err("no end");
        assert_eq!(error.class, Class::Corrupt, "{dialect:?}: {error}");
        assert!(
            fake.state().requests.len() < 5,
            "{dialect:?}: it was seen at once"
        );
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_read_back_is_an_error_and_not_existing() {
    for dialect in [Dialect::S3, Dialect::Oss, Dialect::Gcs] {
        let fake = Fake::start(dialect, None).await;
        let store = store(dialect, &fake, None).await;
        {
            let mut state = fake.state();
            state.drop_next_create_response = true;
            state.quirk = Some(Quirk::RefusesReads);
        }
        let error = store
            .create(&key(), Bytes::from_static(b"{}"))
            .await
            .expect_err("the owner is unknown");
        assert_eq!(
            (error.operation, error.class),
            (Operation::Create, Class::Forbidden),
            "{dialect:?}: {error}"
        );
    }
}

#[tokio::test]
async fn an_upload_that_the_store_completes_late_is_a_success() {
    for dialect in [Dialect::S3, Dialect::Oss, Dialect::Gcs] {
        let fake = Fake::start(dialect, None).await;
        let store = store(dialect, &fake, None).await;
        fake.state().quirk = Some(Quirk::CompletesLate);
        let upload = store.begin(&key(), 10).await.expect("the upload begins");
        let part = upload
            .upload_part(1, Bytes::from_static(b"whole"))
            .await
            .expect("a part");
        let stored = upload
            .complete(vec![part])
            .await
            .expect("the object is the uploaded one");
        assert_eq!(stored.size, 5, "{dialect:?}");
        assert_eq!(
            store.read_small(&key(), 100).await,
            Ok(Bytes::from_static(b"whole")),
            "{dialect:?}"
        );
    }
}

#[tokio::test]
async fn concurrent_uploads_of_one_name_report_success_only_if_they_wrote_it() {
    for dialect in ALL {
        let fake = Fake::start(dialect, None).await;
        let store = store(dialect, &fake, None).await;
        let first = store.begin(&key(), 10).await.expect("the upload begins");
        let second = store.begin(&key(), 10).await.expect("the upload begins");
        let part_of_first = first
            .upload_part(1, Bytes::from_static(b"11111"))
            .await
            .expect("a part");
        let part_of_second = second
            .upload_part(1, Bytes::from_static(b"22222"))
            .await
            .expect("a part");
        second.complete(vec![part_of_second]).await.expect("completed");
        let content = match first.complete(vec![part_of_first]).await {
            Ok(_) => b"11111",
            // Azure discards all other uncommitted blocks of the name when an upload is committed.
            Err(error) => {
                assert_eq!((dialect, error.class), (Dialect::Abs, Class::NoUpload), "{error}");
                b"22222"
            }
        };
        assert_eq!(
            store.read_small(&key(), 100).await,
            Ok(Bytes::from_static(content)),
            "{dialect:?}: the upload that reported success wrote it"
        );
    }
}
