//! Obstacles to the start of a pod, recognized in the texts of the kubelet and the scheduler. Only this module interprets
//! these texts.

/// What keeps a pod from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodObstacle {
    /// A `PersistentVolumeClaim` is missing or cannot be bound.
    VolumeClaim,
    /// An image cannot be pulled.
    Image,
    /// No node fits the pod.
    Unschedulable,
    /// A container exceeded its memory limit.
    OutOfMemory,
}

impl PodObstacle {
    /// Whether the kubelet or the scheduler reports this obstacle in `text`, which must have their reason in front of
    /// the message, as in `ErrImagePull: no such image`. A text may report several.
    pub fn is_reported_in(self, text: &str) -> bool {
        text.contains(match self {
            Self::VolumeClaim => "persistentvolumeclaim",
            Self::Image => "Image",
            Self::Unschedulable => "Unschedulable",
            Self::OutOfMemory => "OOMKilled",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_kubernetes_are_recognized() {
        use PodObstacle::{Image, OutOfMemory, Unschedulable, VolumeClaim};
        for (text, obstacles) in [
            (
                "Unschedulable: persistentvolumeclaim \"backup\" not found",
                vec![VolumeClaim, Unschedulable],
            ),
            ("ErrImagePull: no such image", vec![Image]),
            ("OOMKilled", vec![OutOfMemory]),
            ("CreateContainerConfigError", vec![]),
        ] {
            let all = [VolumeClaim, Image, Unschedulable, OutOfMemory];
            let found: Vec<_> = all
                .into_iter()
                .filter(|obstacle| obstacle.is_reported_in(text))
                .collect();
            assert_eq!(found, obstacles, "{text}");
        }
    }
}
