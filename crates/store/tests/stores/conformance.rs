//! Runs the conformance checks on all five stores.

use etcd_operator_store::Store;
use etcd_operator_store::testing::{CHECKS, MissingFeature, StoreUnderTest, check_all};

use crate::support::{Directory, store};
use etcd_operator_store::testing::fake::{Dialect, Fake};

fn tested(store: Store, object_count: usize, missing: &'static [MissingFeature]) -> StoreUnderTest {
    StoreUnderTest {
        store,
        part_size: 1000,
        object_count,
        missing,
    }
}

/// The features that the fake of this protocol missing. Azure has no listing of uncommitted blocks.
pub fn missing(dialect: Dialect) -> &'static [MissingFeature] {
    match dialect {
        Dialect::Abs => &[MissingFeature::ListUploads],
        Dialect::S3 | Dialect::Oss | Dialect::Gcs => &[],
    }
}

async fn check(dialect: Dialect) {
    let fake = Fake::start(dialect, None).await;
    let store = store(dialect, &fake, None).await;
    let done = check_all(&tested(store, 30, missing(dialect))).await;
    assert_eq!(done, CHECKS.len());
}

#[tokio::test]
async fn s3_conforms() {
    check(Dialect::S3).await;
}

#[tokio::test]
async fn oss_conforms_and_every_signature_is_valid() {
    check(Dialect::Oss).await;
}

#[tokio::test]
async fn gcs_conforms() {
    check(Dialect::Gcs).await;
}

#[tokio::test]
async fn abs_conforms() {
    check(Dialect::Abs).await;
}

#[tokio::test]
async fn a_directory_conforms() {
    let directory = Directory::new("conforms");
    check_all(&tested(directory.store(), 1001, &[])).await;
}
