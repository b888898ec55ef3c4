//! Requesting the backup that comes before another minor version, by an annotation on the `EtcdBackup`.

use etcd_operator_api::EtcdBackup;
use etcd_operator_api::names::ANNOTATION_BACKUP_NOW;
use etcd_operator_cluster_core::plan::BackupRequest;
use etcd_operator_runtime::apply::{Applier, Written};
use etcd_operator_runtime::key::ObjectKey;

use super::{Error, Outcome};
use crate::observe::accepts_requests;

/// Sets the annotation `backup-now`, unless the `EtcdBackup` has that value already. The step is stale if backups of
/// this cluster can no longer be requested from it.
pub async fn request_backup(
    request: &BackupRequest,
    cluster: &ObjectKey,
    applier: &Applier,
) -> Result<Outcome, Error> {
    let name = &request.backup;
    let found = applier
        .read::<EtcdBackup>(&cluster.beside(name))
        .await?
        .filter(|found| accepts_requests(found, cluster));
    let Some(found) = found else {
        return Ok(Outcome::Stale(format!("EtcdBackup {name} has changed")));
    };
    let annotation = [(ANNOTATION_BACKUP_NOW, Some(request.value.as_str()))];
    match applier.annotate(&found, &annotation).await {
        Ok(Written::Changed(_)) => Ok(Outcome::Done(format!(
            "Requested a backup from EtcdBackup {name} before the minor version changes."
        ))),
        // The informer has not seen the annotation yet.
        Ok(Written::Unchanged) => Ok(Outcome::Waits(format!(
            "EtcdBackup {name} has the request already"
        ))),
        Err(error) if error.is_conflict() => Ok(Outcome::Stale(format!("EtcdBackup {name} has changed"))),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::crd;
    use etcd_operator_runtime::clock::TestClock;
    use etcd_operator_runtime::fence::Leadership;
    use etcd_operator_testkit::fake::Fake;
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    const API: &str = "etcd.database.coreos.com/v1beta2";

    fn put(fake: &Fake, spec: &Value) {
        let mut object = json!({
            "apiVersion": API, "kind": "EtcdBackup",
            "metadata": {"name": "nightly", "namespace": "default", "annotations": {"backed-up-by": "ops"}},
            "spec": {"etcdCluster": {"name": "orders"}, "storageType": "S3", "s3": {"path": "b/k"}},
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            object["spec"][field] = value.clone();
        }
        fake.put_object(object);
    }

    fn annotations(fake: &Fake) -> Value {
        let object = fake.get_object(API, "EtcdBackup", "default", "nightly");
        object.unwrap_or_default()["metadata"]["annotations"].clone()
    }

    async fn request(fake: &Fake, leadership: Leadership) -> Result<Outcome, Error> {
        let applier = Applier::new(fake.client("default"), "etcd-operator/cluster", leadership);
        let request = BackupRequest {
            backup: "nightly".to_owned(),
            requested_at: Timestamp::UNIX_EPOCH,
            value: "before-etcd-3.6.16".to_owned(),
        };
        request_backup(&request, &ObjectKey::new("default", "orders"), &applier).await
    }

    fn fake() -> Fake {
        let fake = Fake::new();
        for definition in crd::all() {
            fake.register(&definition);
        }
        fake
    }

    #[tokio::test]
    async fn a_backup_is_requested_once_and_other_annotations_stay() {
        let fake = fake();
        put(&fake, &json!({"schedule": "0 3 * * *"}));
        let leads = || Leadership::always(TestClock::shared());
        let done = request(&fake, leads()).await.expect("an outcome");
        assert!(matches!(done, Outcome::Done(_)), "{done:?}");
        let wanted = json!({"backed-up-by": "ops", ANNOTATION_BACKUP_NOW: "before-etcd-3.6.16"});
        assert_eq!(annotations(&fake), wanted);
        let before = fake.mark();
        let repeated = request(&fake, leads()).await.expect("an outcome");
        assert!(matches!(repeated, Outcome::Waits(_)), "{repeated:?}");
        assert!(fake.writes_since(before).is_empty());
    }

    #[tokio::test]
    async fn nothing_is_requested_of_a_backup_that_has_changed_or_by_a_process_that_does_not_lead() {
        for spec in [
            json!({"schedule": "0 3 * * *", "suspend": true}),
            json!({"schedule": "0 3 * * *", "etcdCluster": {"name": "customers"}}),
            json!({}),
        ] {
            let fake = fake();
            put(&fake, &spec);
            let leadership = Leadership::always(TestClock::shared());
            let outcome = request(&fake, leadership).await.expect("an outcome");
            assert!(matches!(outcome, Outcome::Stale(_)), "{spec}: {outcome:?}");
            assert_eq!(annotations(&fake), json!({"backed-up-by": "ops"}));
        }
        let fake = fake();
        put(&fake, &json!({"schedule": "0 3 * * *"}));
        let (leadership, _control) = Leadership::standby(TestClock::shared());
        assert!(request(&fake, leadership).await.is_err());
        assert_eq!(annotations(&fake), json!({"backed-up-by": "ops"}));
    }
}
