//! The manager process: starts informers at once and controllers on leadership, and shuts down in order.
//!
//! On shutdown the controllers stop before the lease is released, so that the next leader is the only writer.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use etcd_operator_backup::{JobSlots, metrics::BackupMetrics};
use etcd_operator_cluster::{ports::MemberClients, reports};
use etcd_operator_cluster_core::build::NoOperatorImage;
use etcd_operator_restore::metrics::RestoreMetrics;
use etcd_operator_runtime::{
    client,
    clock::{SharedClock, SystemClock},
    events,
    fence::Leadership,
    health::{Health, Server},
    informer::Informers,
    leader::Elector,
    liveness::Liveness,
    metrics::Metrics,
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
    controllers::{Functions, Kinds, OwnWritesByKind, Shared, wire},
    version,
};

/// Runs a manager until SIGTERM or SIGINT, or until an essential task ends.
///
/// Signal handlers are installed first: the kernel drops signals without a handler for the first process of a container.
pub async fn manager(args: ManagerArgs) -> Result<()> {
    let shutdown = CancellationToken::new();
    stop_on_signals(shutdown.clone())?;
    let manager = prepare(args);
    let manager = tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        manager = manager => manager?,
    };
    manager.run(shutdown).await
}

/// Cancels `stop` at SIGTERM or SIGINT.
fn stop_on_signals(stop: CancellationToken) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot install the SIGTERM handler")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot install the SIGINT handler")?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => info!("SIGTERM: stopping"),
            _ = interrupt.recv() => info!("SIGINT: stopping"),
        }
        stop.cancel();
    });
    Ok(())
}

/// Builds the client and binds the address of the health server. It sends nothing to the API server.
async fn prepare(args: ManagerArgs) -> Result<Manager> {
    let config = connection::config().await?;
    let api_server = config.cluster_url.to_string();
    let namespace = args
        .namespace
        .clone()
        .filter(|n| !n.is_empty())
        .unwrap_or(config.default_namespace.clone());
    let user_agent = client::user_agent(version::VERSION, version::COMMIT);
    let client = client::build(config, &user_agent).context("cannot build the client for the API server")?;
    let server = Server::bind(args.health_address)
        .await
        .with_context(|| bind_error(args.health_address))?;
    Ok(Manager {
        args,
        namespace,
        api_server,
        client,
        server,
        clock: SystemClock::shared(),
    })
}

/// A manager with its client and a bound health server, before it runs.
pub struct Manager {
    /// The command line.
    pub args: ManagerArgs,
    /// The operator's own namespace.
    pub namespace: String,
    /// The URL of the API server, for the log.
    pub api_server: String,
    /// The client for the API server.
    pub client: Client,
    /// The bound health server.
    pub server: Server,
    /// The clock.
    pub clock: SharedClock,
}

impl Manager {
    /// Runs until `shutdown`. The end of an essential task is an error.
    pub async fn run(self, shutdown: CancellationToken) -> Result<()> {
        self.run_with(shutdown, Functions::new).await
    }

    /// Like [`run`](Self::run), with other reconcile functions.
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
        let liveness = Liveness::new(clock.clone());
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

        let scope = args.watch_scope(&namespace);
        let (watches, serves) = args.describe_scope(&namespace);
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
        let mut informers =
            Informers::new(client.clone(), clock.clone(), metrics.clone()).liveness(&liveness);
        let kinds = Kinds::watch(&mut informers, &scope, args.watch_nodes);
        let shared = Shared {
            client,
            leadership: leadership.clone(),
            recorder,
            scope: args.scope_rule(),
            installation: format!("{namespace}/{}", args.lease_name),
            instance,
            operator_image: args.operator_image().ok_or(NoOperatorImage),
            default_repository: args.etcd_repository.clone(),
            member_clients: MemberClients {
                etcd: Arc::new(etcd_operator_etcd::port::Network),
                reports: Arc::new(reports::HttpReports),
            },
            clock,
            metrics: metrics.clone(),
            liveness: liveness.clone(),
            concurrency: args.concurrency.into(),
            max_concurrent_rollouts: args.max_concurrent_rollouts.into(),
            intermediate_versions: args.intermediate_versions.clone(),
            job_slots: JobSlots::new(args.max_backup_jobs.into()),
            own_writes: OwnWritesByKind::default(),
        };
        BackupMetrics::new(kinds.backups.store(), shared.clock.clone()).register(&metrics);
        RestoreMetrics::new(kinds.restores.store()).register(&metrics);
        let controllers_to_run = wire(&kinds, functions(&kinds, &shared), &shared);
        let health = Health::new(informers.gates(), leadership.clone(), liveness.clone(), metrics);
        let elector = elector.map(|elector| elector.liveness(&liveness).gates(kinds.needed_stores().into()));
        // The publisher ends only when all recorders are dropped.
        drop(shared);

        // The controllers stop on `working`; tasks that must outlive them stop on `serving`.
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
        for (controller, function) in controllers_to_run {
            controllers.spawn(function.run(controller, leadership.clone(), working.clone()));
        }

        let outcome = tokio::select! {
            // A shutdown ends the controllers too, so it takes precedence.
            biased;
            () = shutdown.cancelled() => Ok(()),
            ended = essential.join_next() => Err(unexpected_end(ended)),
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

/// The error for an address that cannot be bound.
fn bind_error(address: SocketAddr) -> String {
    let free = SocketAddr::new(address.ip(), if address.port() == 8081 { 8082 } else { 8081 });
    format!(
        "cannot bind --health-address {address}: stop the process that listens there, or specify another address; for example: --health-address={free}"
    )
}

fn unexpected_end(ended: Option<Result<Result<()>, tokio::task::JoinError>>) -> anyhow::Error {
    match ended {
        Some(Ok(Err(error))) => error,
        Some(Err(panic)) => anyhow::Error::new(panic).context("an essential task panicked"),
        Some(Ok(Ok(()))) | None => anyhow!("an essential task ended unexpectedly"),
    }
}

/// The host name for the identity in the lease; uniqueness does not depend on it.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "etcd-operator".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_an_address_in_use_names_an_alternative() {
        let message = bind_error(([0, 0, 0, 0], 8080).into());
        assert!(
            message.contains("cannot bind --health-address 0.0.0.0:8080"),
            "{message}"
        );
        assert!(
            message.contains("for example: --health-address=0.0.0.0:8081"),
            "{message}"
        );
        assert!(bind_error(([0, 0, 0, 0], 8081).into()).ends_with("8082"));
    }
}
