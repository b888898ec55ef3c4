//! Runs the conformance checks on all five stores.

use etcd_operator_store::Store;
use etcd_operator_store::testing::{Bench, CHECKS, Lack, check_all};

use crate::support::{Directory, store};
use etcd_operator_store::testing::fake::{Dialect, Fake};

fn bench(store: Store, many: usize, lacks: &'static [Lack]) -> Bench {
    Bench {
        store,
        part_size: 1000,
        many,
        lacks,
    }
}

/// The features that the fake of this protocol lacks. Azure has no listing of uncommitted blocks.
pub fn lacks(dialect: Dialect) -> &'static [Lack] {
    match dialect {
        Dialect::Abs => &[Lack::ListOfUploads],
        Dialect::S3 | Dialect::Oss | Dialect::Gcs => &[],
    }
}

async fn check(dialect: Dialect) {
    let fake = Fake::start(dialect, None).await;
    let store = store(dialect, &fake, None).await;
    let done = check_all(&bench(store, 30, lacks(dialect))).await;
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
    check_all(&bench(directory.store(), 1001, &[])).await;
}
