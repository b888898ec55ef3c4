//! The EtcdCluster controller as the manager runs it, over members that never answer.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use etcd_operator_api::cluster::DefaultRepository;
use etcd_operator_api::contract::{FetchProgress, Report};
use etcd_operator_api::scope::ScopeRule;
use etcd_operator_api::{EtcdBackup, EtcdCluster};
use etcd_operator_cluster::ports::{MemberClients, Reports};
use etcd_operator_cluster::{Deps, Reconciler};
use etcd_operator_cluster_core::observed_state::{CallFailure, QueryResult};
use etcd_operator_etcd::policy::IntermediateVersions;
use etcd_operator_runtime::apply::Applier;
use etcd_operator_runtime::clock::FrozenClock;
use etcd_operator_runtime::controller::Controller;
use etcd_operator_runtime::echo::Echoes;
use etcd_operator_runtime::events;
use etcd_operator_runtime::fence::Leadership;
use etcd_operator_runtime::informer::{Informers, Scope, Selection, keep_all};
use etcd_operator_runtime::metrics::Metrics;
use etcd_operator_runtime::report::Reporter;
use etcd_operator_testkit::etcd::{Caller, Etcds};
use etcd_operator_testkit::golden::{NAMESPACE, NOW};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use tokio_util::sync::CancellationToken;

/// No process waits for a permit.
#[derive(Debug)]
struct NoReports;

type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Reports for NoReports {
    fn read_report(&self, _: IpAddr) -> Answer<QueryResult<Report>> {
        Box::pin(async { QueryResult::NoAnswer(CallFailure::from_text("no answer")) })
    }

    fn read_progress(&self, _: IpAddr) -> Answer<QueryResult<FetchProgress>> {
        Box::pin(async { QueryResult::NoAnswer(CallFailure::from_text("no answer")) })
    }
}

/// Reconciles until it is dropped.
pub async fn operate(client: kube::Client) {
    let clock = FrozenClock::shared(NOW.parse().expect("a time"));
    let leadership = Leadership::always(clock.clone());
    let metrics = Metrics::new("0.0.0", "golden");
    let (recorder, publisher) = events::channel(
        client.clone(),
        "golden",
        leadership.clone(),
        clock.clone(),
        metrics.clone(),
    );
    let mut informers = Informers::new(client.clone(), clock.clone(), metrics.clone());
    let scope = || Selection::from(Scope::Namespaces([NAMESPACE.to_owned()].into()));
    let clusters = informers.add::<EtcdCluster>(scope(), keep_all);
    let backups = informers.add::<EtcdBackup>(scope(), keep_all);
    let sets = informers.add::<StatefulSet>(scope(), keep_all);
    let pods = informers.add::<Pod>(scope(), keep_all);
    let claims = informers.add::<PersistentVolumeClaim>(scope(), keep_all);
    let services = informers.add::<Service>(scope(), keep_all);
    let budgets = informers.add::<PodDisruptionBudget>(scope(), keep_all);
    let applier = Applier::new(client, "etcd-operator/cluster", leadership.clone());
    let function = Reconciler::new(Deps {
        clusters: clusters.store(),
        backups: backups.store(),
        sets: sets.store(),
        pods: pods.store(),
        claims: claims.store(),
        services: services.store(),
        budgets: budgets.store(),
        nodes: None,
        reporter: Reporter::new(applier.clone().noting(Echoes::default()), recorder, clock.clone()),
        applier,
        member_clients: MemberClients {
            etcd: Arc::new(Etcds::new(1).dialer(Caller::free("golden"))),
            reports: Arc::new(NoReports),
        },
        scope: ScopeRule::Namespaced,
        installation: "golden".to_owned(),
        instance: "golden-1".to_owned(),
        default_repository: DefaultRepository::default(),
        operator_image: Ok("registry.example.com/etcd-operator:0.1.0"
            .parse()
            .expect("an image")),
        max_concurrent_rollouts: 5,
        intermediate_versions: IntermediateVersions::default(),
        clock: clock.clone(),
    })
    .function();
    let mut controller = Controller::builder("cluster", clock, metrics).objects(clusters.store());
    for gate in [
        clusters.synced(),
        backups.synced(),
        sets.synced(),
        pods.synced(),
        claims.synced(),
        services.synced(),
        budgets.synced(),
    ] {
        controller = controller.gate(&gate);
    }
    let wakeup = controller.wakeup();
    clusters.sink(move |change| wakeup.push(change.key()));
    let shutdown = CancellationToken::new();
    let _ended = shutdown.clone().drop_guard();
    tokio::spawn(informers.run(shutdown.clone()));
    tokio::spawn(publisher.run(shutdown.clone()));
    controller.run(function, leadership, shutdown).await;
}
