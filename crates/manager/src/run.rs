//! One manager process: informers at once, controllers on leadership, an orderly end.
//!
//! The order of the end matters: controllers stop first, then the lease is given up, so that the next leader finds
//! nobody writing.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use etcd_operator_api::EtcdBackup;
use etcd_operator_backup::freshness::Freshness;
use etcd_operator_cluster::{build::NoOperatorImage, ports::MemberClients, reports};
use etcd_operator_runtime::{
    client,
    clock::{SharedClock, SystemClock},
    events,
    fence::Leadership,
    health::{Health, Server},
    informer::Informers,
    key::ObjectKey,
    leader::Elector,
    metrics::{Figure, Metrics, PerObject},
};
use kube::Client;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::{
    cli::ManagerArgs,
    connection,
    controllers::{Functions, Kinds, Own, Shared, wire},
    version,
};

/// Runs a manager until SIGTERM or SIGINT, or until something essential ends.
///
/// Signals are listened for before anything else is done: as the first process of a container it has no other way to
/// be told to end, for the kernel drops a signal that such a process does not listen for.
pub async fn manager(args: ManagerArgs) -> Result<()> {
    let shutdown = CancellationToken::new();
    stop_on_signals(shutdown.clone())?;
    let manager = prepared(args);
    let manager = tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        manager = manager => manager?,
    };
    manager.run(shutdown).await
}

fn stop_on_signals(stop: CancellationToken) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be listened for")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be listened for")?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => info!("SIGTERM: stopping"),
            _ = interrupt.recv() => info!("SIGINT: stopping"),
        }
        stop.cancel();
    });
    Ok(())
}

async fn prepared(args: ManagerArgs) -> Result<Manager> {
    let config = connection::config().await?;
    let api_server = config.cluster_url.to_string();
    let namespace = args
        .namespace
        .clone()
        .filter(|n| !n.is_empty())
        .unwrap_or(config.default_namespace.clone());
    let user_agent = client::user_agent(version::VERSION, version::COMMIT);
    let client =
        client::build(config, &user_agent).context("the client for the API server cannot be built")?;
    let server = Server::bind(args.health_address)
        .await
        .with_context(|| unbound(args.health_address))?;
    Ok(Manager {
        args,
        namespace,
        api_server,
        client,
        server,
        clock: SystemClock::shared(),
    })
}

/// A manager that has its connection and its address, and is not running yet.
pub struct Manager {
    /// How it was started.
    pub args: ManagerArgs,
    /// The operator's own namespace.
    pub namespace: String,
    /// The address of the API server, for the log.
    pub api_server: String,
    /// The connection.
    pub client: Client,
    /// The bound health server.
    pub server: Server,
    /// Tells the time.
    pub clock: SharedClock,
}

impl Manager {
    /// Runs until `shutdown`, or until something essential ends, which is an error.
    pub async fn run(self, shutdown: CancellationToken) -> Result<()> {
        self.run_with(shutdown, Functions::new).await
    }

    /// The same with other functions in place of the real controllers'.
    pub async fn run_with(
        self,
        shutdown: CancellationToken,
        functions: impl FnOnce(&Kinds, &Shared) -> Functions,
    ) -> Result<()> {
        let Self {
            args,
            namespace,
            api_server,
            client,
            server,
            clock,
        } = self;
        let metrics = Metrics::new(version::VERSION, version::COMMIT);
        let host = args
            .pod_name
            .clone()
            .filter(|n| !n.is_empty())
            .unwrap_or_else(host_name);
        let elector = args.leader_elect.then(|| {
            Elector::new(
                client.clone(),
                &namespace,
                &args.lease_name,
                &host,
                clock.clone(),
                metrics.clone(),
            )
        });
        let leadership = match &elector {
            Some(elector) => elector.leadership(),
            None => Leadership::always(clock.clone()),
        };
        let instance = elector
            .as_ref()
            .map_or(host.as_str(), Elector::identity)
            .to_owned();
        let (recorder, publisher) = events::channel(
            client.clone(),
            instance.clone(),
            leadership.clone(),
            clock.clone(),
            metrics.clone(),
        );

        let scope = args.watched(&namespace);
        let (watches, serves) = args.business(&namespace);
        info!(
            version = version::VERSION,
            commit = version::COMMIT,
            namespace,
            api_server,
            watches,
            serves,
            identity = instance,
            "starting"
        );
        let mut informers = Informers::new(client.clone(), clock.clone(), metrics.clone());
        let kinds = Kinds::watch(&mut informers, &scope, args.watch_nodes);
        let shared = Shared {
            client,
            leadership: leadership.clone(),
            recorder,
            scope: args.scope_rule(),
            installation: format!("{namespace}/{}", args.lease_name),
            instance,
            operator_image: args.operator_image().ok_or(NoOperatorImage),
            member_clients: MemberClients {
                etcd: Arc::new(etcd_operator_etcd::port::Network),
                reports: Arc::new(reports::HttpReports),
            },
            clock,
            metrics: metrics.clone(),
            concurrency: args.concurrency.into(),
            most_backup_jobs: args.max_backup_jobs.into(),
            own: Own::default(),
        };
        freshness(&kinds, &shared);
        let wired = wire(&kinds, functions(&kinds, &shared), &shared);
        let health = Health::new(informers.gates(), leadership.clone(), metrics);
        // Whoever keeps a recorder keeps the publisher waiting for it.
        drop(shared);

        // What must not outlive the controllers, and what must outlive them.
        let working = shutdown.child_token();
        let serving = CancellationToken::new();
        let mut essential: JoinSet<Result<()>> = JoinSet::new();
        let token = serving.clone();
        essential.spawn(async move { informers.run(token).await.context("the informers ended") });
        let token = serving.clone();
        essential.spawn(async move { server.run(health, token).await.context("the health server ended") });
        let token = serving.clone();
        essential.spawn(async move {
            publisher.run(token).await;
            Ok(())
        });
        if let Some(elector) = elector {
            let token = serving.clone();
            essential.spawn(async move { elector.run(token).await.context("leadership ended") });
        }
        let mut controllers = JoinSet::new();
        for (controller, function) in wired {
            controllers.spawn(function.run(controller, leadership.clone(), working.clone()));
        }

        let outcome = tokio::select! {
            // A stop ends the controllers too: when both are there, the stop was first.
            biased;
            () = shutdown.cancelled() => Ok(()),
            ended = essential.join_next() => Err(premature(ended)),
            ended = controllers.join_next() => Err(anyhow!("a controller ended: {ended:?}")),
        };
        if let Err(reason) = &outcome {
            error!("stopping: {reason:#}");
        }
        working.cancel();
        while controllers.join_next().await.is_some() {}
        serving.cancel();
        while essential.join_next().await.is_some() {}
        info!("stopped");
        outcome
    }
}

/// How late backups are, on the page of metrics.
fn freshness(kinds: &Kinds, shared: &Shared) {
    let backups = kinds.backups.store();
    let freshness = Freshness::new(backups.clone(), shared.clock.clone());
    let (ages, sizes) = (freshness.clone(), freshness.clone());
    let about = move |figures: Vec<PerObject>| -> Vec<Figure> {
        // One that went meanwhile is told of no more.
        let found = |figure: PerObject| {
            let key = ObjectKey::new(figure.namespace.as_str(), figure.name.as_str());
            let backup = backups.get(&key)?;
            Some(with_cluster(figure, &backup))
        };
        figures.into_iter().filter_map(found).collect()
    };
    let (about_ages, about_sizes) = (about.clone(), about.clone());
    shared.metrics.register_computed(
        "backup_size_bytes",
        "Bytes of the last good backup of an EtcdBackup, as stored",
        move || about_sizes(sizes.sizes()),
    );
    shared.metrics.register_computed(
        "backup_age_seconds",
        "Time since the last good backup of an EtcdBackup, or since that was made",
        move || about_ages(ages.ages()),
    );
    shared.metrics.register_computed(
        "backup_late_seconds",
        "By how much a good backup of an EtcdBackup is later than its schedule promises; 0 while it is not",
        move || about(freshness.lateness()),
    );
}

/// The same by the cluster as well that is backed up; its name is empty where a backup goes by addresses.
fn with_cluster(figure: PerObject, backup: &EtcdBackup) -> Figure {
    let cluster = backup.spec.etcd_cluster.as_ref();
    figure.with("cluster", cluster.map_or("", |cluster| cluster.name.as_str()))
}

/// What is said of an address that cannot be bound.
fn unbound(address: SocketAddr) -> String {
    let free = SocketAddr::new(address.ip(), if address.port() == 8081 { 8082 } else { 8081 });
    format!(
        "--health-address {address} cannot be bound: stop what listens there, or name another one; for example: --health-address={free}"
    )
}

fn premature(ended: Option<Result<Result<()>, tokio::task::JoinError>>) -> anyhow::Error {
    match ended {
        Some(Ok(Err(error))) => error,
        Some(Err(panic)) => anyhow::Error::new(panic).context("an essential task panicked"),
        Some(Ok(Ok(()))) | None => anyhow!("an essential task ended by itself"),
    }
}

/// For people who read the lease; uniqueness does not depend on it.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "etcd-operator".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_of_a_backup_name_the_cluster_that_it_names() {
        for (source, wanted) in [
            (json!({"etcdCluster": {"name": "orders"}}), "orders"),
            (json!({"etcdEndpoints": ["http://elsewhere:2379"]}), ""),
        ] {
            let mut spec = json!({"storageType": "Local", "local": {"persistentVolumeClaim": "backups"}});
            spec.as_object_mut()
                .unwrap()
                .extend(source.as_object().unwrap().clone());
            let backup: EtcdBackup = serde_json::from_value(json!({
                "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup",
                "metadata": {"name": "nightly", "namespace": "shop"}, "spec": spec,
            }))
            .unwrap();
            let figure = PerObject {
                namespace: "shop".to_owned(),
                name: "nightly".to_owned(),
                value: 7,
            };
            let labels = [("namespace", "shop"), ("name", "nightly"), ("cluster", wanted)];
            let figure = with_cluster(figure, &backup);
            assert_eq!(
                figure.labels,
                labels.map(|(label, text)| (label, text.to_owned()))
            );
            assert_eq!(figure.value, 7);
        }
    }

    #[test]
    fn a_taken_address_is_named_with_a_way_out() {
        let said = unbound(([0, 0, 0, 0], 8080).into());
        assert!(
            said.contains("--health-address 0.0.0.0:8080 cannot be bound"),
            "{said}"
        );
        assert!(
            said.contains("for example: --health-address=0.0.0.0:8081"),
            "{said}"
        );
        assert!(unbound(([0, 0, 0, 0], 8081).into()).ends_with("8082"));
    }
}
