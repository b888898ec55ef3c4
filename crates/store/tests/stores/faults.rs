//! Injects every fault in every phase of an upload, on all five stores. The upload must end complete or
//! aborted, the object must be entirely new or entirely old, and nothing is written twice.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use etcd_operator_store::backend::Backend;
use etcd_operator_store::connect::connect;
use etcd_operator_store::platform::Platform;
use etcd_operator_store::testing::{FaultInjector, InjectedFault, Occurrence, UploadPhase};
use etcd_operator_store::{Class, Error, Key, Policy, Store, StoredObject, UploadRemains};

use crate::support::{Directory, PASSWORD, config, policy, secret_of};
use etcd_operator_store::testing::fake::{Dialect, Fake};

const PART: u64 = 1000;
const PARTS: u32 = 3;

/// A store into which faults can be injected.
trait FaultTarget {
    fn plan(&self, phase: UploadPhase, fault: InjectedFault, times: Occurrence);
    fn clear(&self);
    fn injected_count(&self) -> usize;
    /// How many uploads were completed, if the store counts them.
    fn completions(&self) -> Option<usize>;
}

impl FaultTarget for Fake {
    fn plan(&self, phase: UploadPhase, fault: InjectedFault, times: Occurrence) {
        Fake::plan(self, phase, fault, times);
    }

    fn clear(&self) {
        self.state().clear();
    }

    fn injected_count(&self) -> usize {
        self.state().injected_count()
    }

    fn completions(&self) -> Option<usize> {
        Some(self.state().completions)
    }
}

impl FaultTarget for FaultInjector<etcd_operator_store::local::Local> {
    fn plan(&self, phase: UploadPhase, fault: InjectedFault, times: Occurrence) {
        FaultInjector::plan(self, phase, fault, times);
    }

    fn clear(&self) {
        FaultInjector::clear(self);
    }

    fn injected_count(&self) -> usize {
        FaultInjector::injected_count(self)
    }

    fn completions(&self) -> Option<usize> {
        None
    }
}

async fn upload_object(store: &Store, key: &Key, byte: u8) -> Result<StoredObject, Error> {
    let upload = store.begin(key, PART).await?;
    let mut parts = Vec::new();
    for number in 1..=PARTS {
        let size = if number == PARTS { 10 } else { 1000 };
        match upload.upload_part(number, Bytes::from(vec![byte; size])).await {
            Ok(part) => parts.push(part),
            Err(error) => {
                upload.abort().await.expect("aborting works");
                return Err(error.with_upload_remains(UploadRemains::Aborted));
            }
        }
    }
    upload.complete(parts).await
}

fn expected_class(fault: InjectedFault) -> Class {
    match fault {
        InjectedFault::Internal | InjectedFault::Broken | InjectedFault::LostAnswer => Class::Transient,
        InjectedFault::Throttled => Class::Throttled,
        InjectedFault::Slow => Class::TimedOut,
        InjectedFault::Expired => Class::Credentials,
        InjectedFault::WrongRegion => Class::WrongRegion,
        InjectedFault::Forbidden => Class::Forbidden,
        InjectedFault::NoBucket => Class::NoBucket,
        InjectedFault::Full => Class::Full,
    }
}

/// Runs one cell of the table and returns its text.
async fn run_cell(
    store: &Store,
    target: &dyn FaultTarget,
    phase: UploadPhase,
    fault: InjectedFault,
    times: Occurrence,
    is_abs: bool,
) -> String {
    let what = format!("{phase:?} {fault:?} {times:?}");
    let key =
        Key::new(format!("etcd/{phase:?}-{fault:?}-{times:?}").replace(['(', ')'], "-")).expect("a name");
    upload_object(store, &key, b'o').await.expect("the old object");
    let before = target.completions();
    target.plan(phase, fault, times);
    let outcome = upload_object(store, &key, b'n').await;
    assert!(target.injected_count() > 0, "{what}: the fault was injected");
    target.clear();

    let content = store.read_small(&key, 100_000).await.expect("an object is there");
    assert_eq!(content.len(), 2010, "{what}: the object is complete");
    let is_new = content.iter().all(|byte| *byte == b'n');
    assert!(
        is_new || content.iter().all(|byte| *byte == b'o'),
        "{what}: not a mixture"
    );
    let left = store
        .sweep(key.as_str(), far_future(), |_| true)
        .await
        .expect("swept")
        .aborted;
    assert_eq!(left, Vec::<String>::new(), "{what}: no upload is left");
    if let (Some(before), Some(after)) = (before, target.completions()) {
        assert!(after <= before + 1, "{what}: completed once at most");
    }

    // Azure uploads have no begin request. In this phase only a metadata read fails, and that is tolerated.
    let is_tolerated = phase == UploadPhase::AfterComplete || (is_abs && phase == UploadPhase::Begin);
    match &outcome {
        Ok(_) => {
            assert!(is_new, "{what}: success means the new object");
            let retry_helps = times == Occurrence::Once && fault.is_temporary();
            let settled = fault == InjectedFault::LostAnswer && phase == UploadPhase::Complete;
            assert!(retry_helps || settled || is_tolerated, "{what}: must not succeed");
            "complete".to_owned()
        }
        Err(error) => {
            let text = format!("{error} {error:?}");
            assert!(
                !text.contains(PASSWORD) && !text.contains("aHVudGVy"),
                "{what}: {text}"
            );
            assert!(
                times == Occurrence::Always || !fault.is_temporary(),
                "{what}: a retry must succeed: {error}"
            );
            if phase == UploadPhase::AfterComplete {
                assert!(is_new, "{what}: the object was already complete");
            } else {
                assert!(!is_new, "{what}: failure means the old object");
                assert!(
                    is_tolerated || error.class == expected_class(fault),
                    "{what}: {error:?}"
                );
                assert_ne!(
                    error.upload_remains,
                    Some(UploadRemains::Unknown),
                    "{what}: {error}"
                );
            }
            format!("{:?}", error.class)
        }
    }
}

fn far_future() -> jiff::Timestamp {
    jiff::Timestamp::from_second(4_102_444_800).expect("a time")
}

/// Two clients of the same store: one with short timeouts for faults that never respond, and one with long
/// timeouts for slow machines.
struct Stores {
    impatient: Store,
    patient: Store,
}

/// The documented results. The test fails if they differ from what happens.
const TABLE: &str = include_str!("faults.md");

async fn check_table(
    name: &str,
    stores: &Stores,
    target: &dyn FaultTarget,
    without: &[InjectedFault],
    is_abs: bool,
) {
    let (mut cells, mut differing) = (0, String::new());
    for fault in InjectedFault::ALL
        .into_iter()
        .filter(|fault| !without.contains(fault))
    {
        let store = if fault == InjectedFault::Slow {
            &stores.impatient
        } else {
            &stores.patient
        };
        for times in [Occurrence::Once, Occurrence::Always] {
            let mut row = Vec::new();
            for phase in UploadPhase::all(PARTS) {
                let word = run_cell(store, target, phase, fault, times, is_abs).await;
                row.push(word);
                cells += 1;
            }
            let line = format!("| {name} | {fault:?} | {times:?} | {} |\n", row.join(" | "));
            if !TABLE.contains(&line) {
                differing.push_str(&line);
            }
        }
    }
    assert!(cells >= 90, "{cells} cells");
    assert_eq!(differing, "", "faults.md differs");
}

fn impatient_policy() -> Policy {
    Policy {
        request_timeout: Duration::from_millis(700),
        part_timeout: Duration::from_millis(700),
        complete_timeout: Duration::from_millis(700),
        ..policy()
    }
}

async fn check_faults(dialect: Dialect, name: &str, without: &[InjectedFault]) {
    let fake = Fake::start(dialect, None).await;
    let secret = secret_of(dialect);
    let config = config(dialect, &fake.endpoint, None);
    let platform = Platform::default();
    let connected = async |policy| {
        connect(&config, Some(&secret), &platform, policy)
            .await
            .expect("a store")
    };
    let stores = Stores {
        impatient: connected(impatient_policy()).await,
        patient: connected(policy()).await,
    };
    check_table(name, &stores, &fake, without, dialect == Dialect::Abs).await;
}

#[tokio::test]
async fn s3_uploads_end_complete_or_aborted() {
    check_faults(Dialect::S3, "s3", &[]).await;
}

#[tokio::test]
async fn oss_uploads_end_complete_or_aborted() {
    check_faults(Dialect::Oss, "oss", &[]).await;
}

#[tokio::test]
async fn gcs_uploads_end_complete_or_aborted() {
    // GCS serves every bucket from every region.
    check_faults(Dialect::Gcs, "gcs", &[InjectedFault::WrongRegion]).await;
}

#[tokio::test]
async fn abs_uploads_end_complete_or_aborted() {
    check_faults(Dialect::Abs, "abs", &[InjectedFault::WrongRegion]).await;
}

#[tokio::test]
async fn local_uploads_end_complete_or_aborted() {
    let directory = Directory::new("faults");
    let backend = Arc::new(FaultInjector::new(directory.backend()));
    let with = |policy| Store::new(Arc::clone(&backend) as Arc<dyn Backend>, policy);
    let stores = Stores {
        impatient: with(impatient_policy()),
        patient: with(policy()),
    };
    check_table("local", &stores, backend.as_ref(), &[], false).await;
}
