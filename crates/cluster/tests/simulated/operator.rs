//! The real controller on a seat of the simulator: informers, echoes, queue, reconciler, Events. Only the lease is left
//! out, whose part the simulation plays, and the driver's choice among what is ready, so that a seed decides everything.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_operator_api::cluster::DefaultRepository;
use etcd_operator_api::contract::{FetchProgress, Report};
use etcd_operator_api::names::{APP_VALUE, LABEL_APP, LABEL_CLUSTER};
use etcd_operator_api::scope::ScopeRule;
use etcd_operator_api::{EtcdBackup, EtcdCluster};
use etcd_operator_cluster::ports::{MemberClients, Reports};
use etcd_operator_cluster::{Deps, Error, Reconciler};
use etcd_operator_cluster_core::observed_state::{CallFailure, QueryResult};
use etcd_operator_cluster_core::trim;
use etcd_operator_etcd::policy::IntermediateVersions;
use etcd_operator_etcd::port::Answer;
use etcd_operator_runtime::apply::Applier;
use etcd_operator_runtime::clock::{SharedClock, TestClock};
use etcd_operator_runtime::controller::Function;
use etcd_operator_runtime::echo::Echoes;
use etcd_operator_runtime::error::{Class, Classified as _};
use etcd_operator_runtime::events;
use etcd_operator_runtime::fence::Leadership;
use etcd_operator_runtime::informer::{Informer, Informers, Scope, Selection, Watched, keep_all};
use etcd_operator_runtime::jitter::Jitter;
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::metrics::Metrics;
use etcd_operator_runtime::queue::{Config, Outcome, Queue};
use etcd_operator_runtime::report::Reporter;
use etcd_operator_runtime::wakeup::Wakeup;
use etcd_operator_testkit::chance::Chance;
use etcd_operator_testkit::ledger::Promise;
use etcd_operator_testkit::machine::Unreported;
use etcd_operator_testkit::simulation::{NAMESPACE, Seat, Simulation};
use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;

/// A reconcile takes no longer.
const DEADLINE: Duration = Duration::from_mins(1);
/// No life takes so many of them: an operator that goes round and round without ever waiting would never let it end.
const MOST: u64 = 30_000;

/// Reports of waiting members of the model.
#[derive(Clone, Debug)]
struct Told(Seat);

impl Reports for Told {
    fn read_report(&self, at: IpAddr) -> Answer<'_, QueryResult<Report>> {
        Box::pin(async move {
            match self.0.report(&at.to_string()).await {
                Ok(report) => QueryResult::Answer(report),
                Err(Unreported::NotWaiting) => QueryResult::OtherResponder,
                Err(why @ Unreported::Refused) => {
                    QueryResult::NoAnswer(CallFailure::connection_refused(why.to_string()))
                }
                Err(why) => QueryResult::NoAnswer(CallFailure::from_text(why.to_string())),
            }
        })
    }

    fn read_progress(&self, _: IpAddr) -> Answer<'_, QueryResult<FetchProgress>> {
        // Downloads of the model take no time that anybody could ask in.
        Box::pin(async { QueryResult::OtherResponder })
    }
}

/// Lets real operators serve a simulation, each under a name of its own.
pub fn install(sim: &Simulation) {
    install_that(sim, false);
}

/// The same with operators that look at nodes, too.
pub fn install_watching_nodes(sim: &Simulation) {
    install_that(sim, true);
}

fn install_that(sim: &Simulation, watches_nodes: bool) {
    let starts = AtomicU64::new(0);
    let rounds = Arc::new(AtomicU64::new(0));
    let seed = sim.draw();
    sim.operate(move |seat| {
        let start = starts.fetch_add(1, Ordering::Relaxed);
        let chance = Chance::new(seed.wrapping_add(start));
        let instance = format!("operator-{start}");
        operate(seat, instance, chance, Arc::clone(&rounds), watches_nodes)
    });
}

/// Works until it is killed.
async fn operate(
    seat: Seat,
    instance: String,
    mut chance: Chance,
    rounds: Arc<AtomicU64>,
    watches_nodes: bool,
) {
    let client = seat.client();
    let clock: SharedClock = Arc::new(TestClock::starting_at(seat.wall()));
    let leadership = Leadership::always(clock.clone());
    let metrics = Metrics::new("0.0.0", "simulated");
    let jitter = jitter(chance.split());
    let (recorder, publisher) = events::channel(
        client.clone(),
        instance.clone(),
        leadership.clone(),
        clock.clone(),
        metrics.clone(),
    );
    let publisher = publisher.jitter(jitter.clone());
    // Nobody makes backups here: their store stays empty, and costs no call.
    let unwatched = Informers::new(client.clone(), clock.clone(), metrics.clone())
        .add::<EtcdBackup>(Selection::from(Scope::All), keep_all);
    let mut informers = Informers::new(client.clone(), clock.clone(), metrics).jitter(jitter);
    let scope = Scope::Namespaces([NAMESPACE.to_owned()].into());
    let labelled = || scope.clone().labelled(format!("{LABEL_APP}={APP_VALUE}"));
    let clusters = informers.add::<EtcdCluster>(Selection::from(scope.clone()), keep_all);
    let sets = informers.add(labelled(), etcd_operator_cluster::trim::set);
    let pods = informers.add(labelled(), trim::pod);
    let claims = informers.add(labelled(), trim::claim);
    let services = informers.add(labelled(), trim::service);
    let budgets = informers.add(labelled(), trim::budget);
    let nodes = watches_nodes.then(|| informers.add(Selection::from(Scope::All), trim::node));
    let (wakeup, own) = (Wakeup::default(), Echoes::default());
    clusters.sink({
        let (wakeup, own) = (wakeup.clone(), own.clone());
        move |change| {
            if !own.is_own(change) {
                wakeup.push(change.key());
            }
        }
    });
    wake_owner(&sets, &wakeup);
    wake_owner(&pods, &wakeup);
    wake_owner(&claims, &wakeup);
    wake_owner(&services, &wakeup);
    wake_owner(&budgets, &wakeup);
    let applier = Applier::new(client, "etcd-operator/cluster", leadership);
    let reconcile = Reconciler::new(Deps {
        clusters: clusters.store(),
        backups: unwatched.store(),
        sets: sets.store(),
        pods: pods.store(),
        claims: claims.store(),
        services: services.store(),
        budgets: budgets.store(),
        nodes: nodes.as_ref().map(Informer::store),
        reporter: Reporter::new(applier.clone().noting(own), recorder, clock.clone()),
        applier,
        member_clients: MemberClients {
            etcd: Arc::new(seat.dialer()),
            reports: Arc::new(Told(seat.clone())),
        },
        scope: ScopeRule::Namespaced,
        installation: "simulated".to_owned(),
        instance,
        default_repository: DefaultRepository::default(),
        operator_image: Ok("etcd-operator:simulated".parse().expect("an image")),
        max_concurrent_rollouts: 5,
        intermediate_versions: IntermediateVersions::default(),
        clock: clock.clone(),
    })
    .function();
    let gates = informers.gates();
    let shutdown = CancellationToken::new();
    tokio::spawn(informers.run(shutdown.clone()));
    tokio::spawn(publisher.run(shutdown.clone()));
    let _ended = shutdown.drop_guard();
    for gate in gates {
        gate.wait_until_ready().await;
    }
    drive(
        &reconcile,
        &wakeup,
        clusters.store().keys(),
        &clock,
        chance,
        (&seat, &rounds),
    )
    .await;
}

/// What the machine's chance would be.
fn jitter(chance: Chance) -> Jitter {
    let chance = Mutex::new(chance);
    Jitter::drawn(move || chance.lock().unwrap().bits())
}

/// A change of a part wakes the cluster whose label it bears.
fn wake_owner<K: Watched>(parts: &Informer<K>, wakeup: &Wakeup) {
    let wakeup = wakeup.clone();
    parts.sink(move |change| {
        let labels = change.object().and_then(|part| part.meta().labels.as_ref());
        if let Some(cluster) = labels.and_then(|labels| labels.get(LABEL_CLUSTER)) {
            wakeup.push(change.key().beside(cluster));
        }
    });
}

/// The real queue, one object at a time.
async fn drive(
    reconcile: &Function<Error>,
    wakeup: &Wakeup,
    known: Vec<ObjectKey>,
    clock: &SharedClock,
    mut chance: Chance,
    (seat, rounds): (&Seat, &AtomicU64),
) {
    let mut queue = Queue::new(Config::default());
    for key in known {
        queue.push(key, clock.elapsed());
    }
    loop {
        for key in wakeup.drain() {
            queue.push(key, clock.elapsed());
        }
        if let Some(key) = queue.pop(clock.elapsed()) {
            if rounds.fetch_add(1, Ordering::Relaxed) >= MOST {
                seat.accuse(Promise::S9, "the operator goes round and round");
                std::future::pending::<()>().await;
            }
            let outcome = once(reconcile, &key, seat).await;
            for key in wakeup.drain() {
                queue.push(key, clock.elapsed());
            }
            let jitter = Duration::from_millis(chance.below(1000)).as_secs_f64();
            queue.done(&key, outcome, clock.elapsed(), jitter);
            continue;
        }
        let rest = queue.next_due().map(|due| due.saturating_sub(clock.elapsed()));
        let pause = rest.map(|rest| rest + Duration::from_millis(1));
        tokio::select! {
            biased;
            () = wakeup.wait() => {}
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
    }
}

async fn once(reconcile: &Function<Error>, key: &ObjectKey, seat: &Seat) -> Outcome {
    let work = AssertUnwindSafe(tokio::time::timeout(DEADLINE, async {
        reconcile(key.clone()).await
    }));
    match work.catch_unwind().await {
        Ok(Ok(Ok(wake))) => Outcome::Done(wake),
        Ok(Ok(Err(error))) => {
            seat.remark(format!("fails: {error}"));
            Outcome::Failed(error.class())
        }
        Ok(Err(_)) => {
            seat.remark("abandons a reconcile that takes too long");
            Outcome::Failed(Class::Transient)
        }
        Err(_) => {
            seat.accuse(Promise::NoPanic, "the reconcile panics");
            Outcome::Failed(Class::Fatal)
        }
    }
}
