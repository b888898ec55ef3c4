//! What a real cluster serves, compared with what a snapshot of it holds.

use anyhow::{Result, bail, ensure};
use etcd_operator_api::contract::{CompareTask, JobOutcome, Source, StoreOrder, VerifyTask};
use etcd_operator_api::store::StorageType;
use etcd_operator_e2e::bed_dir::BedDir;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_job::compare::compare;
use etcd_operator_job::verify::verify;
use etcd_operator_job::{clock, settings};
use etcd_operator_store::Policy;
use jiff::SignedDuration;

use crate::etcds::Fleet;

async fn etcdctl(fleet: &Fleet, words: &[&str]) -> Result<()> {
    let output = fleet.etcdctl(0, words).await?;
    ensure!(output.status.success(), "{words:?}: {output:?}");
    Ok(())
}

/// An etcd into which nothing was ever written is not as far as its backup was to be raised, and holds what that held.
async fn nothing(fleet: &Fleet) -> Result<()> {
    let mut task = CompareTask {
        source: Source {
            endpoints: vec![fleet.client_url(0).to_string()],
            ..Source::default()
        },
        cluster_id: fleet.known(0).await?.cluster.to_string(),
        revision: 1_000_000,
        digest: format!("1:0:{}", "0".repeat(64)),
        deadline: clock::now().checked_add(SignedDuration::from_mins(5))?,
    };
    let compared = compare(&task).await?;
    ensure!(
        matches!(
            compared,
            JobOutcome::Compared {
                revision: 1,
                keys: 0,
                ..
            }
        ),
        "{compared:?}"
    );
    "1:1:00".clone_into(&mut task.digest);
    let failure = compare(&task).await.expect_err("it holds less");
    ensure!(failure.reason == "DataDiffer", "{failure:?}");
    Ok(())
}

#[tokio::test]
async fn a_cluster_serves_what_its_snapshot_holds_whatever_was_written_since() -> Result<()> {
    for version in [EtcdVersion::V3_2_25, EtcdVersion::V3_6_16] {
        let fleet = Fleet::new(version).await?;
        let _processes = fleet.bootstrap(1).await?;
        nothing(&fleet).await?;
        // More than one page, and the first larger than the 4 MiB that an answer may have unless a call says otherwise.
        let value = "x".repeat(60_000);
        for number in 0..120 {
            etcdctl(&fleet, &["put", &format!("key-{number}"), &value]).await?;
        }
        etcdctl(&fleet, &["del", "key-7"]).await?;
        let bed = BedDir::create()?;
        let file = bed.path().join("orders").display().to_string();
        etcdctl(&fleet, &["snapshot", "save", &file]).await?;
        etcdctl(&fleet, &["put", "key-8", "another"]).await?;
        etcdctl(&fleet, &["del", "key-9"]).await?;

        let order = StoreOrder {
            kind: StorageType::Local,
            bucket: bed.path().display().to_string(),
            path: "orders".to_owned(),
            ..StoreOrder::default()
        };
        let store = settings::connect_store(&order, Policy::default()).await?;
        let deadline = clock::now().checked_add(SignedDuration::from_mins(5))?;
        let task = VerifyTask {
            keys: None,
            beside: Some(Source {
                endpoints: vec![fleet.client_url(0).to_string()],
                ..Source::default()
            }),
            deadline,
        };
        let scratch = BedDir::create()?;
        let JobOutcome::Verified(verified) = verify(&store, "orders", &task, scratch.path()).await? else {
            bail!("it was to be verified");
        };
        ensure!(verified.keys == 119, "{version:?}: {verified:?}");
        ensure!(
            // A snapshot has a hash behind it, which a database has not.
            verified.beside >= Some(verified.object.snapshot_size - 32),
            "how large its database is was not asked: {verified:?}"
        );
        let known = fleet.known(0).await?;
        let task = CompareTask {
            source: Source {
                endpoints: vec![fleet.client_url(0).to_string()],
                ..Source::default()
            },
            cluster_id: known.cluster.to_string(),
            revision: verified.revision,
            digest: verified.digest.clone(),
            deadline,
        };
        let compared = JobOutcome::Compared {
            revision: verified.revision,
            keys: 119,
            digest: verified.digest.clone(),
        };
        ensure!(compare(&task).await? == compared, "{version:?}");
        for (wrong, reason) in [
            (
                CompareTask {
                    revision: verified.revision + 1,
                    ..task.clone()
                },
                "DataDiffer",
            ),
            (
                CompareTask {
                    cluster_id: "aa".to_owned(),
                    ..task.clone()
                },
                "OtherCluster",
            ),
        ] {
            let failure = compare(&wrong).await.expect_err(reason);
            ensure!(
                failure.reason == reason && !failure.is_retriable,
                "{version:?}: {failure:?}"
            );
        }
    }
    Ok(())
}
