//! One pass over one `EtcdCluster`: read the store, decide, report.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use etcd_operator_api::{EtcdCluster, scope::ScopeRule};
use etcd_operator_runtime::{
    apply::Error,
    clock::SharedClock,
    controller::Function,
    events::Severity,
    key::ObjectKey,
    queue::Wake,
    report::Reporter,
    store::{Malformed, Store},
};

use crate::{desired::desired, status};

/// What the controller reads and writes with.
#[derive(Clone, Debug)]
pub struct Deps {
    /// All `EtcdCluster`s in sight.
    pub clusters: Store<EtcdCluster>,
    /// Writes what was found.
    pub reporter: Reporter,
    /// Which clusters are this installation's business.
    pub scope: ScopeRule,
    /// Names this installation, for `status.controlledBy`.
    pub installation: String,
    /// Tells the time.
    pub clock: SharedClock,
}

/// The `EtcdCluster` controller; cheap to clone.
#[derive(Clone, Debug)]
pub struct Reconciler {
    deps: Arc<Deps>,
    /// Clusters in scope that another installation looks after, and which one: told when it is news, for their own
    /// status is not this installation's to write.
    elsewhere: Arc<Mutex<BTreeMap<ObjectKey, String>>>,
}

impl Reconciler {
    /// A controller that reads and writes with these.
    pub fn new(deps: Deps) -> Self {
        Self {
            deps: Arc::new(deps),
            elsewhere: Arc::default(),
        }
    }

    /// The function that the driver calls.
    pub fn function(self) -> Function<Error> {
        Box::new(move |key| {
            let this = self.clone();
            Box::pin(async move { this.reconcile(&key).await })
        })
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Wake, Error> {
        let Deps {
            clusters,
            reporter,
            scope,
            installation,
            clock,
        } = &*self.deps;
        let Some(cluster) = clusters.get(key) else {
            self.elsewhere(key, None);
            let serves = |bad: &Malformed| {
                let by = bad.controlled_by.as_deref();
                scope.serves(Some(&bad.annotations)).is_ok() && status::another(by, installation).is_none()
            };
            return reporter.absent::<EtcdCluster>(clusters, key, serves).await;
        };
        if cluster.metadata.deletion_timestamp.is_some() {
            return Ok(Wake::OnChange);
        }
        let served = scope.serves(cluster.metadata.annotations.as_ref());
        let other = status::controlled_by_another(&cluster, installation).filter(|_| served.is_ok());
        let news = self.elsewhere(key, other);
        if let Some(other) = other {
            let note = format!(
                "The installation {other} of the operator looks after this cluster; {installation} leaves it alone."
            );
            if news {
                reporter.tell(
                    &*cluster,
                    Severity::Warning,
                    "ControlledElsewhere",
                    "LeaveAlone",
                    note,
                );
            }
            return Ok(Wake::OnChange);
        }
        let after = match served {
            Ok(()) => status::status(&cluster, &desired(&cluster), installation, clock.now()),
            Err(not_served) => match status::left_alone(&cluster, &not_served, installation, clock.now()) {
                Some(status) => status,
                None => return Ok(Wake::OnChange),
            },
        };
        reporter.report(&*cluster, after).await?;
        Ok(Wake::OnChange)
    }

    /// Notes which other installation looks after a cluster; tells whether that is news.
    fn elsewhere(&self, key: &ObjectKey, other: Option<&str>) -> bool {
        let mut known = self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match other {
            Some(other) => known.insert(key.clone(), other.to_owned()),
            None => known.remove(key),
        };
        before.as_deref() != other
    }
}
