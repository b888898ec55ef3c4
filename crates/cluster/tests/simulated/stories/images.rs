//! New etcd images, which a Job tries before any member gets them.

use etcd_operator_testkit::fake::{Call, Fault, Matching, Verb};
use etcd_operator_testkit::gate::Side;
use etcd_operator_testkit::machine::{
    MISLABELLED_FOR_MEMBERS_REPOSITORY, MISLABELLED_REPOSITORY, MISSING_REPOSITORY,
};
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, run};
use serde_json::{Value, json};

use super::rollouts::{PODS, blockers, change, condition, ends_well, is_rolled_out, uids};
use super::{cluster, status};
use crate::{MINUTE, SECOND};

/// A repository whose images hold what their tags say.
const MIRROR: &str = "mirror.example.com/etcd";

fn repository(sim: &Simulation, repository: &str) {
    sim.edit("c", |spec| spec["repository"] = json!(repository));
}

fn set_back(sim: &Simulation) {
    sim.edit("c", |spec| {
        spec.as_object_mut().unwrap().remove("repository");
    });
    change(sim, "1");
}

fn jobs(sim: &Simulation) -> usize {
    sim.fake().list_objects("batch/v1", "Job", NAMESPACE).len()
}

/// A pod of a Job that has not ended.
fn pod_of_job(sim: &Simulation) -> Option<String> {
    let pods = sim.fake().list_objects("v1", "Pod", NAMESPACE);
    let mut live = pods.iter().filter(|pod| {
        let metadata = &pod["metadata"];
        metadata["labels"].get("job-name").is_some()
            && metadata.get("deletionTimestamp").is_none()
            && pod["status"]["phase"] != "Succeeded"
    });
    Some(live.next()?["metadata"]["name"].as_str()?.to_owned())
}

fn template(sim: &Simulation) -> Value {
    let set = sim.fake().get_object("apps/v1", "StatefulSet", NAMESPACE, "c");
    set.unwrap_or_default()["spec"]["template"].clone()
}

fn is_told_skipped(sim: &Simulation) -> bool {
    let events = sim.fake().list_objects("events.k8s.io/v1", "Event", "");
    events.iter().any(|event| event["reason"] == "ImageNotChecked")
}

fn is_unusable(sim: &Simulation) -> bool {
    condition(sim, "RolledOut") == ("False".to_owned(), "Blocked".to_owned())
        && blockers(sim).contains(&json!("ImageNotUsable"))
}

#[test]
fn a_good_image_is_tried_once_and_rolled_out() {
    for (seed, size) in [(60, 3), (61, 1)] {
        run(seed, |sim| async move {
            cluster(&sim, size).await;
            let _writers = sim.write("c", 2, SECOND);
            repository(&sim, MIRROR);
            change(&sim, "1");
            sim.expect("a Job tries it", MINUTE, |sim| jobs(sim) == 1).await;
            is_rolled_out(&sim, size, "1").await;
            tokio::time::sleep(15 * MINUTE).await;
            assert_eq!(jobs(&sim), 0, "it is cleaned up, and no other one is made");
            // A change without another image needs none.
            change(&sim, "2");
            for _ in 0..60 {
                tokio::time::sleep(SECOND).await;
                assert_eq!(jobs(&sim), 0);
            }
            is_rolled_out(&sim, size, "2").await;
            ends_well(&sim).await;
        });
    }
}

#[test]
fn an_image_that_cannot_be_pulled_or_has_another_version_than_its_tag_touches_no_member() {
    for (seed, size, bad) in [
        (62, 3, MISSING_REPOSITORY),
        (63, 1, MISSING_REPOSITORY),
        (64, 3, MISLABELLED_REPOSITORY),
        (65, 1, MISLABELLED_REPOSITORY),
    ] {
        run(seed, |sim| async move {
            cluster(&sim, size).await;
            let _writers = sim.write("c", 2, SECOND);
            let (before, had, claims) = (uids(&sim), template(&sim), super::claims(&sim));
            repository(&sim, bad);
            sim.expect("the image is told", 2 * MINUTE, is_unusable).await;
            for _ in 0..75 {
                tokio::time::sleep(MINUTE).await;
                assert!(is_unusable(&sim), "{bad}: it stands while it is tried again");
                assert!(!is_told_skipped(&sim) && jobs(&sim) <= 1, "{bad}");
                assert_eq!(uids(&sim), before, "{bad}");
                assert!(sim.is_whole("c", size), "{bad}");
            }
            assert_eq!(template(&sim), had, "{bad}");
            set_back(&sim);
            is_rolled_out(&sim, size, "1").await;
            assert_eq!(super::claims(&sim), claims, "a bad image costs no volume");
            ends_well(&sim).await;
        });
    }
}

#[test]
fn a_member_that_is_lost_while_the_image_is_blocked_comes_back_and_the_cluster_grows() {
    run(66, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        repository(&sim, MISSING_REPOSITORY);
        sim.expect("the image is told", 2 * MINUTE, is_unusable).await;
        sim.ledger().forgive_losses();
        sim.wipe("c-1");
        sim.expect("it is whole again", 10 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        sim.edit("c", |spec| spec["size"] = json!(5));
        sim.expect("it has grown", 10 * MINUTE, |sim| sim.is_whole("c", 5))
            .await;
        sim.expect("the image is told", 2 * MINUTE, is_unusable).await;
        ends_well(&sim).await;
    });
}

#[test]
fn an_image_that_comes_to_the_registry_later_is_found_without_an_edit() {
    run(67, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        repository(&sim, MISSING_REPOSITORY);
        change(&sim, "1");
        sim.expect("the image is told", 2 * MINUTE, is_unusable).await;
        tokio::time::sleep(25 * MINUTE).await;
        sim.machine().bring_missing_images();
        is_rolled_out(&sim, 3, "1").await;
        ends_well(&sim).await;
    });
}

#[test]
fn a_quota_that_refuses_the_pod_holds_a_rollout_up_for_two_minutes_and_no_longer() {
    run(68, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        let before = uids(&sim);
        sim.machine().refuse_job_pods(true);
        repository(&sim, MIRROR);
        change(&sim, "1");
        for _ in 0..110 {
            tokio::time::sleep(SECOND).await;
            assert!(uids(&sim) == before && !is_told_skipped(&sim));
        }
        assert_eq!(
            condition(&sim, "RolledOut"),
            ("False".to_owned(), "Pending".to_owned())
        );
        is_rolled_out(&sim, 3, "1").await;
        assert!(is_told_skipped(&sim));
        assert_eq!(jobs(&sim), 0, "no pod of the Job takes the place of a member");
        ends_well(&sim).await;
    });
}

#[test]
fn a_lying_image_that_the_job_does_not_see_stops_at_the_first_member() {
    for (seed, size, is_skipped) in [(69, 3, false), (70, 1, false), (71, 3, true)] {
        run(seed, |sim| async move {
            cluster(&sim, size).await;
            let _writers = sim.write("c", 2, SECOND);
            let claims = super::claims(&sim);
            let before = uids(&sim);
            sim.machine().refuse_job_pods(is_skipped);
            let lies = if is_skipped {
                MISLABELLED_REPOSITORY
            } else {
                MISLABELLED_FOR_MEMBERS_REPOSITORY
            };
            repository(&sim, lies);
            sim.expect("the image is told", 15 * MINUTE, |sim| {
                blockers(sim).contains(&json!("ImageVersionDiffers"))
            })
            .await;
            // In all this time no member runs that image or is replaced because of it.
            tokio::time::sleep(30 * MINUTE).await;
            let members = status(&sim)["memberStatus"].clone();
            let mut members = members.as_array().into_iter().flatten();
            assert!(members.all(|member| member["version"] == "3.6.16"), "{size}");
            let now = uids(&sim);
            let gone = PODS.iter().enumerate().filter(|(at, _)| now[*at] != before[*at]);
            assert_eq!(gone.count(), 1, "the others are untouched");
            assert_eq!(super::claims(&sim), claims, "{size}");
            sim.machine().refuse_job_pods(false);
            set_back(&sim);
            is_rolled_out(&sim, size, "1").await;
            assert_eq!(status(&sim)["currentVersion"], "3.6.16", "{size}");
            assert_eq!(super::claims(&sim), claims, "a bad image costs no volume");
            ends_well(&sim).await;
        });
    }
}

#[test]
fn an_operator_that_dies_as_it_creates_or_deletes_a_job_goes_on_with_it() {
    for (seed, (call, side)) in ["Create jobs", "Delete jobs"]
        .into_iter()
        .flat_map(|call| [(call, Side::Before), (call, Side::After)])
        .enumerate()
    {
        run(80 + u64::try_from(seed).unwrap(), |sim| async move {
            cluster(&sim, 3).await;
            let _writers = sim.write("c", 2, SECOND);
            let before = uids(&sim);
            repository(&sim, MISSING_REPOSITORY);
            change(&sim, "1");
            sim.expect("the image is told", 5 * MINUTE, is_unusable).await;
            // The Job of that image goes, and one of another image comes.
            let starts = sim.starts();
            sim.crash_operator_around(call, side, 20 * SECOND);
            repository(&sim, MISLABELLED_REPOSITORY);
            sim.expect("the other image is tried", 5 * MINUTE, |sim| {
                let failure = &status(sim)["rollout"]["imageFailure"];
                let image = failure["image"].as_str().unwrap_or_default();
                sim.starts() > starts && is_unusable(sim) && image.starts_with(MISLABELLED_REPOSITORY)
            })
            .await;
            assert_eq!(uids(&sim), before, "{call} {side:?}");
            repository(&sim, MIRROR);
            is_rolled_out(&sim, 3, "1").await;
            assert!(!is_told_skipped(&sim), "{call} {side:?}");
            ends_well(&sim).await;
        });
    }
}

#[test]
fn a_bad_image_stays_bad_while_no_job_gets_a_pod_and_a_new_operator_knows() {
    run(90, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        let before = uids(&sim);
        repository(&sim, MISSING_REPOSITORY);
        change(&sim, "1");
        sim.expect("the image is told", 2 * MINUTE, is_unusable).await;
        sim.machine().refuse_job_pods(true);
        sim.kill_operator();
        sim.start_operator();
        for _ in 0..75 {
            tokio::time::sleep(MINUTE).await;
            assert!(
                is_unusable(&sim) && uids(&sim) == before,
                "it was not let through"
            );
            assert!(!is_told_skipped(&sim));
        }
        sim.machine().refuse_job_pods(false);
        sim.machine().bring_missing_images();
        is_rolled_out(&sim, 3, "1").await;
        ends_well(&sim).await;
    });
}

#[test]
fn a_job_that_cannot_be_read_or_created_says_nothing_about_its_image() {
    for (seed, verb, resource) in [
        (93, Verb::Get, "jobs"),
        (94, Verb::List, "pods"),
        (95, Verb::Create, "jobs"),
    ] {
        run(seed, |sim| async move {
            cluster(&sim, 3).await;
            let before = uids(&sim);
            // As while a quota's status is unknown, or roles are created anew.
            let calls = Matching::any().verb(verb).resource(resource);
            let refused = Fault::Refuse(403, "forbidden".to_owned());
            sim.fake().fault(calls.clone(), refused.clone(), 1);
            repository(&sim, MISSING_REPOSITORY);
            sim.expect("the image is told", 5 * MINUTE, is_unusable).await;
            sim.fake().fault(calls, refused, 3);
            tokio::time::sleep(20 * MINUTE).await;
            assert!(is_unusable(&sim) && !is_told_skipped(&sim), "{resource}");
            assert_eq!(uids(&sim), before, "{resource}");
            ends_well(&sim).await;
        });
    }
}

#[test]
fn a_bad_image_costs_few_calls() {
    run(96, |sim| async move {
        cluster(&sim, 3).await;
        repository(&sim, MISSING_REPOSITORY);
        sim.expect("the image is told", 2 * MINUTE, is_unusable).await;
        tokio::time::sleep(10 * MINUTE).await;
        let mark = sim.fake().mark();
        tokio::time::sleep(10 * MINUTE).await;
        let calls = sim.fake().calls_since(mark);
        let count = |verb: Verb, resource: &str| {
            let is_such = |call: &&Call| call.verb == verb && call.resource == resource;
            calls.iter().filter(is_such).count()
        };
        // Two tries: each has a dry run, a Job, and some looks at both until it is deleted.
        assert!(
            count(Verb::Create, "jobs") <= 3,
            "{}",
            count(Verb::Create, "jobs")
        );
        for (verb, resource) in [(Verb::Get, "jobs"), (Verb::List, "pods"), (Verb::Create, "pods")] {
            assert!(
                count(verb, resource) <= 20,
                "{resource}: {}",
                count(verb, resource)
            );
        }
        ends_well(&sim).await;
    });
}

#[test]
fn a_pod_of_the_job_that_is_deleted_costs_no_verdict() {
    run(91, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        repository(&sim, MIRROR);
        change(&sim, "1");
        sim.expect("a Job has a pod", MINUTE, |sim| pod_of_job(sim).is_some())
            .await;
        let pod = pod_of_job(&sim).expect("it was there");
        sim.fake().delete_object("v1", "Pod", NAMESPACE, &pod);
        sim.expect("another one follows", MINUTE, |sim| {
            pod_of_job(sim).is_some_and(|next| next != pod)
        })
        .await;
        is_rolled_out(&sim, 3, "1").await;
        assert!(!is_told_skipped(&sim));
        ends_well(&sim).await;
    });
}

#[test]
fn the_job_of_an_image_that_is_withdrawn_goes_at_once() {
    run(92, |sim| async move {
        cluster(&sim, 3).await;
        let before = uids(&sim);
        sim.machine().refuse_job_pods(true);
        repository(&sim, MIRROR);
        sim.expect("a Job tries it", MINUTE, |sim| jobs(sim) == 1).await;
        tokio::time::sleep(20 * SECOND).await;
        assert_eq!(jobs(&sim), 1);
        sim.edit("c", |spec| {
            spec.as_object_mut().unwrap().remove("repository");
        });
        sim.expect("its Job goes", MINUTE, |sim| {
            jobs(sim) == 0 && pod_of_job(sim).is_none() && condition(sim, "RolledOut").0 == "True"
        })
        .await;
        assert_eq!(uids(&sim), before);
        ends_well(&sim).await;
    });
}
