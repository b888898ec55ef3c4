//! How a life comes to rest: all is waited for that the spec asks for, and a person decides what no operator may.

use etcd_operator_api::names::{ANNOTATION_DISCARD, ANNOTATION_REPLACE};
use etcd_operator_testkit::ledger::Promise;
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation};
use serde_json::{Value, json};

use crate::MINUTE;
use crate::weather::{NAME, PATIENCE, converges, status};

/// How often a person answers, as every member may bring up some questions.
const ANSWERS: usize = 20;

/// Waits until all is as the spec asks for in the end; whoever must be asked about a member is asked.
pub async fn settle(sim: &Simulation) -> u8 {
    let size = asked_size(sim);
    let asks = |sim: &Simulation| {
        let asks = |cluster: &Value| {
            let text = cluster["status"]["plan"]["why"].as_str();
            text.is_some_and(|text| text.contains("a person must find out why"))
        };
        sim.look(NAME, asks) == Some(true)
    };
    let is_settled = async || {
        let is_settled = |sim: &Simulation| {
            let asks_for_consent = |cluster: &Value| {
                let plan = &cluster["status"]["plan"];
                unread_of(plan).is_some()
                    || stranger_of(plan).is_some()
                    || undecided_of(plan).is_some()
                    || unusable_of(plan).is_some()
            };
            sim.is_whole(NAME, size) || asks(sim) || sim.look(NAME, asks_for_consent) == Some(true)
        };
        sim.until(PATIENCE, is_settled).await;
    };
    let mut answers = 0;
    while answers < ANSWERS {
        is_settled().await;
        if !answer(sim).await {
            break;
        }
        answers += 1;
    }
    if answers == ANSWERS {
        let plan = status(sim)["plan"].to_string();
        sim.ledger()
            .accuse(Promise::S9, format!("it asks again whatever is answered: {plan}"));
    }
    if asks(sim) {
        sim.tally().count("refusal: too many replacements");
        sim.edit(NAME, |spec| spec["recovery"] = json!({"replaceAfter": "4m"}));
    }
    converges(sim, size, "in the end").await;
    size
}

/// How many members are asked for.
pub fn asked_size(sim: &Simulation) -> u8 {
    let size = |cluster: &Value| u8::try_from(cluster["spec"]["size"].as_u64()?).ok();
    sim.look(NAME, size).flatten().unwrap_or(3)
}

/// Answers what a person is asked, if one is.
async fn answer(sim: &Simulation) -> bool {
    if let Some(pod) = stranger(sim) {
        give_up(sim, &pod).await;
    } else if undecided(sim).is_some() {
        decide(sim).await;
    } else if let Some(pod) = unread(sim) {
        // The person risks what only they can judge.
        sim.tally().count("refusal: unread data go with a pod");
        sim.ledger().forgive_losses();
        sim.fake().delete_object("v1", "Pod", NAMESPACE, &pod);
        let is_over = |sim: &Simulation| unread(sim).is_none_or(|asked| asked != pod);
        sim.until(MINUTE, is_over).await;
    } else if let Some(id) = unusable(sim) {
        // The spec is right by now, so it is the volume.
        sim.annotate(NAME, ANNOTATION_REPLACE, &id);
        let is_over = |sim: &Simulation| unusable(sim).is_none_or(|asked| asked != id);
        sim.until(PATIENCE, is_over).await;
    } else {
        return false;
    }
    true
}

/// What may have been written before the cluster was seen to work is given up by whoever knows that nothing was, or risks it.
pub async fn decide(sim: &Simulation) {
    for _ in 0..ANSWERS {
        let Some(pod) = undecided(sim) else { return };
        sim.tally()
            .count("refusal: what may have been written is given up");
        sim.ledger().give_up_clusters();
        give_up(sim, &pod).await;
        let is_over = |sim: &Simulation| undecided(sim).is_none_or(|asked| asked != pod);
        sim.until(PATIENCE, is_over).await;
    }
}

/// The member on whose volume another one's data are, if a person is asked about one.
fn stranger(sim: &Simulation) -> Option<String> {
    sim.look(NAME, |cluster| stranger_of(&cluster["status"]["plan"]))?
}

fn stranger_of(plan: &Value) -> Option<String> {
    let blockers = plan["blockers"].as_array()?;
    let is_foreign = |blocker: &&Value| {
        let message = blocker["message"].as_str().unwrap_or_default();
        let is_of_another_member =
            message.contains("the disk belongs to member") && message.contains(ANNOTATION_DISCARD);
        blocker["reason"] == "ForeignData" || is_of_another_member
    };
    blockers.iter().find(is_foreign)?["member"]
        .as_str()
        .map(str::to_owned)
}

/// Gives up the volume of a member, with the data of somebody else that are on it.
async fn give_up(sim: &Simulation, pod: &str) {
    let claim = sim
        .fake()
        .get_object("v1", "PersistentVolumeClaim", NAMESPACE, &format!("data-{pod}"));
    let uid = claim.as_ref().and_then(|claim| claim["metadata"]["uid"].as_str());
    sim.annotate(NAME, ANNOTATION_DISCARD, uid.unwrap_or_default());
    let is_over = |sim: &Simulation| stranger(sim).is_none_or(|asked| asked != pod);
    sim.until(PATIENCE, is_over).await;
}

/// The member that may hold what clients wrote before its cluster was seen to work, if a person is asked about one.
fn undecided(sim: &Simulation) -> Option<String> {
    sim.look(NAME, |cluster| undecided_of(&cluster["status"]["plan"]))?
}

fn undecided_of(plan: &Value) -> Option<String> {
    first_if(
        plan,
        "may hold what clients wrote before the cluster was seen to work",
    )
}

/// The pod with which data would go that nobody has read, if a person is asked about one.
fn unread(sim: &Simulation) -> Option<String> {
    sim.look(NAME, |cluster| unread_of(&cluster["status"]["plan"]))?
}

fn unread_of(plan: &Value) -> Option<String> {
    first_if(plan, "its data go with its pod: it may hold what clients wrote")
}

/// The ID of a member that cannot use its volume, with a pod template with which no voter served, if a person is asked which of the
/// two is wrong.
fn unusable(sim: &Simulation) -> Option<String> {
    sim.look(NAME, |cluster| unusable_of(&cluster["status"]["plan"]))?
}

fn unusable_of(plan: &Value) -> Option<String> {
    let blockers = plan["blockers"].as_array()?;
    let asked = format!("{ANNOTATION_REPLACE} and the ID ");
    let mut ids = blockers
        .iter()
        .filter(|blocker| blocker["reason"] == "TemplateNotServed")
        .filter_map(|blocker| blocker["message"].as_str()?.split_once(&asked))
        .filter_map(|(_, id)| id.split([' ', ';', '.', ',']).next());
    ids.next().map(str::to_owned)
}

/// The first word of a plan that says this.
fn first_if(plan: &Value, words: &str) -> Option<String> {
    let why = plan["why"].as_str().filter(|why| why.contains(words))?;
    why.split(' ').next().map(str::to_owned)
}
