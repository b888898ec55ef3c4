//! Injects every fault in every phase of an upload, on all five stores. The upload must end complete or
//! aborted, the object must be entirely new or entirely old, and nothing is written twice.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use etcd_operator_store::connect::connect;
use etcd_operator_store::platform::Platform;
use etcd_operator_store::port::Port;
use etcd_operator_store::testing::{Faulty, Harm, Phase, Times};
use etcd_operator_store::{Class, Error, Key, Policy, Remains, Store, Stored};

use crate::support::{Directory, PASSWORD, config, policy, secret_of};
use etcd_operator_store::testing::fake::{Dialect, Fake};

const PART: u64 = 1000;
const PARTS: u32 = 3;

/// A store into which faults can be injected.
trait FaultTarget {
    fn plan(&self, phase: Phase, harm: Harm, times: Times);
    fn calm(&self);
    fn happened(&self) -> usize;
    /// How many uploads were completed, if the store counts them.
    fn completions(&self) -> Option<usize>;
}

impl FaultTarget for Fake {
    fn plan(&self, phase: Phase, harm: Harm, times: Times) {
        Fake::plan(self, phase, harm, times);
    }

    fn calm(&self) {
        self.state().calm();
    }

    fn happened(&self) -> usize {
        self.state().happened()
    }

    fn completions(&self) -> Option<usize> {
        Some(self.state().completions)
    }
}

impl FaultTarget for Faulty<etcd_operator_store::local::Local> {
    fn plan(&self, phase: Phase, harm: Harm, times: Times) {
        Faulty::plan(self, phase, harm, times);
    }

    fn calm(&self) {
        Faulty::calm(self);
    }

    fn happened(&self) -> usize {
        Faulty::happened(self)
    }

    fn completions(&self) -> Option<usize> {
        None
    }
}

async fn upload_object(store: &Store, key: &Key, byte: u8) -> Result<Stored, Error> {
    let upload = store.begin(key, PART).await?;
    let mut parts = Vec::new();
    for number in 1..=PARTS {
        let size = if number == PARTS { 10 } else { 1000 };
        match upload.part(number, Bytes::from(vec![byte; size])).await {
            Ok(part) => parts.push(part),
            Err(error) => {
                upload.abort().await.expect("aborting works");
                return Err(error.with_remains(Remains::Aborted));
            }
        }
    }
    upload.complete(parts).await
}

fn expected_class(harm: Harm) -> Class {
    match harm {
        Harm::Internal | Harm::Broken | Harm::LostAnswer => Class::Transient,
        Harm::Throttled => Class::Throttled,
        Harm::Slow => Class::TimedOut,
        Harm::Expired => Class::Credentials,
        Harm::WrongRegion => Class::WrongRegion,
        Harm::Forbidden => Class::Forbidden,
        Harm::NoBucket => Class::NoBucket,
        Harm::Full => Class::Full,
    }
}

/// Runs one cell of the table and returns its text.
async fn run_cell(
    store: &Store,
    target: &dyn FaultTarget,
    phase: Phase,
    harm: Harm,
    times: Times,
    is_abs: bool,
) -> String {
    let what = format!("{phase:?} {harm:?} {times:?}");
    let key =
        Key::new(format!("etcd/{phase:?}-{harm:?}-{times:?}").replace(['(', ')'], "-")).expect("a name");
    upload_object(store, &key, b'o').await.expect("the old object");
    let before = target.completions();
    target.plan(phase, harm, times);
    let outcome = upload_object(store, &key, b'n').await;
    assert!(target.happened() > 0, "{what}: the fault was injected");
    target.calm();

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
    let is_tolerated = phase == Phase::AfterComplete || (is_abs && phase == Phase::Begin);
    match &outcome {
        Ok(_) => {
            assert!(is_new, "{what}: success means the new object");
            let retry_helps = times == Times::Once && harm.passes();
            let settled = harm == Harm::LostAnswer && phase == Phase::Complete;
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
                times == Times::Always || !harm.passes(),
                "{what}: a retry must succeed: {error}"
            );
            if phase == Phase::AfterComplete {
                assert!(is_new, "{what}: the object was already complete");
            } else {
                assert!(!is_new, "{what}: failure means the old object");
                assert!(
                    is_tolerated || error.class == expected_class(harm),
                    "{what}: {error:?}"
                );
                assert_ne!(error.remains, Some(Remains::Unknown), "{what}: {error}");
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
const TABLE: &str = include_str!("../../../../docs/proof/stores.md");

async fn check_table(name: &str, stores: &Stores, target: &dyn FaultTarget, without: &[Harm], is_abs: bool) {
    let (mut cells, mut differing) = (0, String::new());
    for harm in Harm::ALL.into_iter().filter(|harm| !without.contains(harm)) {
        let store = if harm == Harm::Slow {
            &stores.impatient
        } else {
            &stores.patient
        };
        for times in [Times::Once, Times::Always] {
            let mut row = Vec::new();
            for phase in Phase::all(PARTS) {
                let word = run_cell(store, target, phase, harm, times, is_abs).await;
                row.push(word);
                cells += 1;
            }
            let line = format!("| {name} | {harm:?} | {times:?} | {} |\n", row.join(" | "));
            if !TABLE.contains(&line) {
                differing.push_str(&line);
            }
        }
    }
    assert!(cells >= 90, "{cells} cells");
    assert_eq!(differing, "", "docs/proof/stores.md differs");
}

fn impatient_policy() -> Policy {
    Policy {
        request: Duration::from_millis(700),
        part: Duration::from_millis(700),
        complete: Duration::from_millis(700),
        ..policy()
    }
}

async fn check_faults(dialect: Dialect, name: &str, without: &[Harm]) {
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
    check_faults(Dialect::Gcs, "gcs", &[Harm::WrongRegion]).await;
}

#[tokio::test]
async fn abs_uploads_end_complete_or_aborted() {
    check_faults(Dialect::Abs, "abs", &[Harm::WrongRegion]).await;
}

#[tokio::test]
async fn local_uploads_end_complete_or_aborted() {
    let directory = Directory::new("faults");
    let port = Arc::new(Faulty::new(directory.port()));
    let with = |policy| Store::new(Arc::clone(&port) as Arc<dyn Port>, policy);
    let stores = Stores {
        impatient: with(impatient_policy()),
        patient: with(policy()),
    };
    check_table("local", &stores, port.as_ref(), &[], false).await;
}
