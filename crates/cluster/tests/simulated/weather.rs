//! One seed, one life of a cluster: how it is asked for, when things begin to go wrong, what a person does in the end,
//! and what must have become of it by then.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use etcd_operator_api::names::ANNOTATION_REPLACE;
use etcd_operator_testkit::chance::Chance;
use etcd_operator_testkit::ledger::{Promise, Violation, Writers};
use etcd_operator_testkit::simulation::{Fault, NAMESPACE, Schedule, Simulation, run};
use serde_json::{Value, json};

use crate::endings::{ambush, end};
use crate::fate::{Ending, Fate, Opening};
use crate::leads::Lead;
use crate::restores::lives::{self, Restores};
use crate::settle::{asked_size, settle};
use crate::{MINUTE, SECOND, coverage, operator};

pub const NAME: &str = "c";
/// By then a cluster about which nothing goes wrong any more is as asked for.
pub const PATIENCE: Duration = Duration::from_mins(20);

/// For how long etcd must know its members before it changes them.
const ACQUAINTED: Duration = Duration::from_secs(8);

/// How much happens in a life that counts.
pub const EVENTS: u64 = 200;
/// How many faults it has at least.
pub const FAULTS: usize = 3;
/// About so much happens until all is as wanted once nothing more goes wrong.
const UNTIL_SETTLED: u64 = 70;
/// And so much until members have formed a cluster that never reached one another.
const UNTIL_FORMED: u64 = 40;
/// How often more goes wrong where too little has happened.
const MORE: usize = 4;

/// What lives are about. A seed decides another life for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Everything but restores.
    Usual,
    /// Restores, beside everything.
    Restores,
}

/// What became of a seed.
#[derive(Clone, Debug)]
pub struct Life {
    pub about: About,
    pub seed: u64,
    pub violations: Vec<Violation>,
    pub injected: Vec<(u32, String)>,
    pub events: u64,
    pub writes: u64,
    pub counts: BTreeMap<String, u64>,
    pub record: String,
    pub status: String,
}

impl Life {
    /// What is broken, without when and how.
    pub fn broken(&self) -> BTreeSet<Promise> {
        self.violations
            .iter()
            .map(|violation| violation.promise)
            .collect()
    }
}

/// Lives through a seed, with all of its faults or only some.
pub fn live(about: About, seed: u64, only: Option<&BTreeSet<u32>>) -> Life {
    lived(about, seed, only, |_| ()).0
}

/// The same while somebody looks on, who must not change anything by that.
pub fn lived<T>(
    about: About,
    seed: u64,
    only: Option<&BTreeSet<u32>>,
    onlooker: impl FnOnce(&Simulation) -> T,
) -> (Life, T) {
    run(seed, |sim| async move {
        let looks_on = onlooker(&sim);
        let injected = Box::pin(story(&sim, about, only.cloned())).await;
        let status = sim
            .cluster(NAME)
            .map_or(Value::Null, |cluster| cluster["status"].clone());
        let life = Life {
            about,
            seed,
            violations: sim.ledger().violations(),
            injected,
            events: sim.events(),
            writes: u64::try_from(sim.ledger().acknowledged()).unwrap_or(u64::MAX),
            counts: sim.tally().counts(),
            record: sim.timeline().text(),
            status: serde_json::to_string_pretty(&status).unwrap_or_default(),
        };
        (life, looks_on)
    })
}

async fn story(sim: &Simulation, about: About, only: Option<BTreeSet<u32>>) -> Vec<(u32, String)> {
    let mut chance = Chance::new(sim.draw());
    let mut fate = Fate::draw(&mut chance);
    if about == About::Usual {
        fate = fate
            .led_to_its_place(&mut chance)
            .led_to_a_refusal(sim.seed(), &mut chance);
    }
    sim.timeline().note("fate", format_args!("{fate:?}"));
    coverage::watch(sim);
    if about == About::Usual {
        sim.destine(fate.place.with_those_before());
    }
    let dooms = sim.dooms();
    operator::install(sim);
    let object = json!({"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": fate.spec()});
    sim.create_with(object.clone());
    let mut writers = None;
    if fate.writes_early {
        writers = Some(write(sim));
    }
    let mut schedule = Schedule::of(NAME, fate.faults);
    schedule.sizes = vec![1, 3, 3, 3, 5];
    if fate.lead.is_some_and(Lead::needs_three) {
        schedule.sizes = vec![3, 5];
    }
    if matches!(fate.ending, Ending::Adopt | Ending::Discard) {
        // Each member more would have to be asked about.
        schedule.sizes = Vec::new();
    }
    schedule.is_fleeting = fate.is_fleeting;
    schedule.has_person = about == About::Usual;
    schedule.events = EVENTS.saturating_sub(fate.ending.events(fate.size));
    if about == About::Usual {
        schedule.events = schedule.events.saturating_sub(UNTIL_SETTLED);
        if fate.opening == Opening::Severed {
            schedule.events = schedule.events.saturating_sub(UNTIL_FORMED);
        }
    }
    schedule.between.1 = 25 * SECOND;
    let restores = (about == About::Restores).then(|| {
        lives::watch(sim);
        Restores::draw(sim, &mut chance.split(), fate.is_fleeting, only.clone())
    });
    let play = || restores.clone().map(|restores| tokio::spawn(restores.play()));
    let early = (fate.opening != Opening::Calm).then(play).flatten();
    schedule.only = only;
    // What goes wrong beside the faults of the schedule.
    let mut others = Vec::new();
    match fate.opening {
        Opening::Calm => {
            if let Some(lead) = fate.lead {
                lead.before_it_forms(sim, fate.size).await;
            }
            let mut is_whole = converges(sim, fate.size, "after its creation").await;
            // Most of the times etcd knows its members for long enough by then to take one in, or let one go.
            if !chance.one_in(5) {
                tokio::time::sleep(ACQUAINTED).await;
            }
            if let Some(lead) = fate.lead.filter(|_| is_whole) {
                others.push(format!("{lead:?}"));
                let size = lead.amid(sim, fate.size).await;
                is_whole = converges(sim, size, "after it was led to a refusal").await;
            }
            // Enough happens on the way to a refusal.
            let is_led = fate.lead.is_some() || about == About::Restores;
            if let Some(first) = fate.first(sim).filter(|_| is_whole && !is_led) {
                sim.inject(NAME, &first);
                others.push(format!("{first:?}"));
            }
        }
        Opening::Rough => schedule.between.1 = Duration::from_secs(15),
        Opening::Severed => {
            schedule.between.1 = Duration::from_secs(15);
            others.push(format!("{:?}", fate.opening));
            sever(sim, &fate, &mut chance).await;
        }
    }
    // Its operator dies, most of the times.
    let led = others.len() + usize::from(about == About::Usual);
    schedule.least = FAULTS.saturating_sub(led).max(1);
    schedule.faults = schedule
        .faults
        .min(u32::try_from(schedule.least).unwrap_or(u32::MAX));
    let late = (writers.is_none()).then(|| {
        let sim = sim.clone();
        tokio::spawn(async move {
            sim.until(PATIENCE, is_latched).await;
            // Until the story ends.
            let _writers = write(&sim);
            std::future::pending::<()>().await;
        })
    });
    let played = early.or_else(play);
    let mut injected = sim.suffer(&schedule).await;
    if let Some(played) = played {
        played.await.expect("restores are played to their end");
    }
    want_something(sim, fate.lead);
    if let Some(restores) = &restores {
        restores.end().await;
    }
    let mut size = settle(sim).await;
    if sim.dooms() < dooms {
        others.push(format!("{:?}", fate.place));
    }
    // Its end must not bring more than is missing, so that what came before it may have brought too little.
    let mut happened = injected.len() + others.len();
    if about == About::Usual {
        let to_come = fate.ending.events(size);
        let more = suffer_more(sim, &fate, &mut schedule, happened, to_come).await;
        happened += more.len();
        injected.extend(more);
        size = asked_size(sim);
    }
    if fate.ending == Ending::Alone {
        sim.destine(Vec::new());
    }
    drop(writers);
    if let Some(late) = late {
        late.abort();
    }
    if let Some(restores) = &restores {
        restores.expect(fate.version).await;
    }
    let mut keeps_data = end(sim, &fate, (size, object), &mut chance, restores.is_some()).await;
    if let Some(restores) = restores.as_ref().filter(|_| fate.ending == Ending::Ruin) {
        restores.rescue().await;
        converges(sim, size, "after it was restored").await;
        restores.expect(fate.version).await;
        keeps_data = true;
    }
    if about == About::Usual && fate.ending != Ending::Ruin {
        injected.extend(suffer_more(sim, &fate, &mut schedule, happened, 0).await);
    }
    if keeps_data && !sim.ledger().verify(NAMESPACE, NAME).await {
        sim.ledger()
            .accuse(Promise::S9, "nobody answers a read in the end".to_owned());
    }
    let injected = injected
        .into_iter()
        .map(|(number, fault)| (number, format!("{fault:?}")));
    let others = (schedule.numbers().end..).zip(others);
    let about_restores = restores.map(|restores| restores.played()).unwrap_or_default();
    injected.chain(others).chain(about_restores).collect()
}

/// More goes wrong, for as long as too little has happened beside what is to come.
async fn suffer_more(
    sim: &Simulation,
    fate: &Fate,
    schedule: &mut Schedule,
    mut happened: usize,
    to_come: u64,
) -> Vec<(u32, Fault)> {
    let mut injected = Vec::new();
    for _ in 0..MORE {
        schedule.first = schedule.numbers().end;
        schedule.faults = 0;
        schedule.least = FAULTS.saturating_sub(happened);
        schedule.events = EVENTS.saturating_sub(to_come);
        if !schedule.goes_on(0, sim.events()) {
            break;
        }
        let more = sim.suffer(schedule).await;
        happened += more.len();
        injected.extend(more);
        want_something(sim, fate.lead);
        settle(sim).await;
    }
    injected
}

fn write(sim: &Simulation) -> Writers {
    sim.write(NAME, 2, 3 * SECOND)
}

pub fn status(sim: &Simulation) -> Value {
    sim.cluster(NAME)
        .map_or(Value::Null, |cluster| cluster["status"].clone())
}

pub fn is_latched(sim: &Simulation) -> bool {
    sim.look(NAME, |cluster| cluster["status"]["clusterID"].is_string()) == Some(true)
}

/// Whether every member runs the current spec, or nobody says otherwise.
fn is_rolled_out(sim: &Simulation) -> bool {
    let conditions = status(sim)["conditions"].clone();
    let mut conditions = conditions.as_array().into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == "RolledOut");
    found.is_none_or(|condition| condition["status"] == "True")
}

pub async fn converges(sim: &Simulation, size: u8, when: &str) -> bool {
    let is_as_asked = |sim: &Simulation| sim.is_whole(NAME, size) && is_rolled_out(sim);
    let is_whole = sim.until(PATIENCE, is_as_asked).await;
    if !is_whole {
        let plan = status(sim)["plan"].to_string();
        sim.ledger()
            .accuse(Promise::S9, format!("not whole {when}: {plan}"));
    }
    is_whole
}

/// The members start and never reach one another, and some lose what they have.
async fn sever(sim: &Simulation, fate: &Fate, chance: &mut Chance) {
    let names: Vec<String> = (0..fate.size).map(|number| format!("{NAME}-{number}")).collect();
    for name in &names {
        for other in &names {
            if name != other {
                sim.etcds().cut(name, other);
            }
        }
    }
    let is_begun = |sim: &Simulation| {
        let begins = |cluster: &Value| cluster["status"]["plan"]["step"]["kind"] == "Bootstrap";
        sim.look(NAME, begins) == Some(true)
    };
    sim.until(MINUTE, is_begun).await;
    tokio::time::sleep(chance.between(Duration::ZERO, 5 * SECOND)).await;
    ambush(sim, "StartOver", chance);
    let mut lost = chance.below(u64::from(fate.size) + 1);
    if fate.place.flow == "StartOver" {
        // Nobody begins anew whom enough of the others remember.
        lost = lost.max(u64::from(fate.size / 2) + 1);
    }
    for name in names.iter().take(usize::try_from(lost).unwrap_or(0)) {
        // What nobody could write cannot be lost; a single member forms by itself.
        if fate.size > 1 && !is_latched(sim) {
            sim.wipe(name);
        }
    }
    tokio::time::sleep(chance.between(SECOND, 20 * SECOND)).await;
    sim.etcds().mend_all();
}

/// In the end somebody wants members, wants them looked after, and wants nothing else: what they asked for and was not done
/// by now they no longer want.
fn want_something(sim: &Simulation, lead: Option<Lead>) {
    let is_enough = |size: &Value| {
        let least = if lead.is_some_and(Lead::needs_three) { 3 } else { 1 };
        size.as_u64().is_some_and(|size| size >= least)
    };
    sim.edit(NAME, |spec| {
        if !is_enough(&spec["size"]) {
            spec["size"] = json!(3);
        }
        spec["paused"] = json!(false);
    });
    sim.annotate(NAME, ANNOTATION_REPLACE, "");
}
