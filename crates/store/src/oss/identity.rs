//! Who asks OSS: the key pair of a Secret, or what the platform gives: variables, a role for a service account, the role
//! of the machine. Temporary pairs are renewed before they end.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::sign::Keys;
use crate::clock;
use crate::codes::Refusal;
use crate::error::{Class, Fault};
use crate::net;
use crate::platform::Platform;
use crate::secret::{BadConfig, Censor, Hidden, Secret};

const SECRET: &str = "oss.ossSecret";
const METADATA: &str = "http://100.100.100.200";
const STS: &str = "https://sts.aliyuncs.com";

/// Pairs are renewed this long before they end.
const MARGIN: SignedDuration = SignedDuration::from_mins(5);

/// How long the platform may take to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Where key pairs come from.
pub(super) enum Identity {
    /// They stay what they are.
    Fixed(Keys),
    /// They are asked for.
    Asked {
        source: Source,
        http: reqwest::Client,
        last: Mutex<Option<Temporary>>,
    },
}

/// Who gives temporary pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A role for the service account, by its token in a file.
    ServiceAccount {
        sts: String,
        role: String,
        provider: String,
        token_file: String,
    },
    /// The role of the machine, by its metadata service.
    Machine { metadata: String, role: Option<String> },
}

#[derive(Clone, Debug)]
pub(super) struct Temporary {
    keys: Keys,
    ends: Timestamp,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Issued {
    access_key_id: String,
    access_key_secret: String,
    security_token: String,
    expiration: Timestamp,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Assumed {
    credentials: Issued,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct Refused {
    code: String,
    message: String,
}

impl Identity {
    pub(super) fn new(
        secret: Option<&Secret>,
        platform: &Platform,
        http: reqwest::Client,
    ) -> Result<Self, BadConfig> {
        if let Some(secret) = secret {
            return Ok(Self::Fixed(Keys {
                id: secret.required(SECRET, "accessKeyID")?.to_owned(),
                secret: Hidden::new(secret.required(SECRET, "accessKeySecret")?),
                token: secret.text(SECRET, "securityToken")?.map(Hidden::new),
            }));
        }
        let variable = |name: &str| platform.variable(&format!("ALIBABA_CLOUD_{name}"));
        if let (Some(id), Some(secret)) = (variable("ACCESS_KEY_ID"), variable("ACCESS_KEY_SECRET")) {
            return Ok(Self::Fixed(Keys {
                id: id.to_owned(),
                secret: Hidden::new(secret),
                token: variable("SECURITY_TOKEN").map(Hidden::new),
            }));
        }
        let account = (
            variable("ROLE_ARN"),
            variable("OIDC_PROVIDER_ARN"),
            variable("OIDC_TOKEN_FILE"),
        );
        let source = if let (Some(role), Some(provider), Some(token_file)) = account {
            let sts = variable("STS_ENDPOINT").map_or_else(|| STS.to_owned(), with_scheme);
            Source::ServiceAccount {
                sts,
                role: role.to_owned(),
                provider: provider.to_owned(),
                token_file: token_file.to_owned(),
            }
        } else {
            Source::Machine {
                metadata: platform.metadata.clone().unwrap_or_else(|| METADATA.to_owned()),
                role: variable("ECS_METADATA").map(str::to_owned),
            }
        };
        Ok(Self::Asked {
            source,
            http,
            last: Mutex::new(None),
        })
    }

    /// What must not be in messages. Temporary pairs are not known beforehand; stores do not repeat them.
    pub(super) fn censor(&self) -> Censor {
        match self {
            Self::Fixed(keys) => Censor::new(
                [keys.secret.reveal()]
                    .into_iter()
                    .chain(keys.token.as_ref().map(Hidden::reveal)),
            ),
            Self::Asked { .. } => Censor::default(),
        }
    }

    /// A key pair that is good for the next minutes.
    pub(super) async fn keys(&self) -> Result<Keys, Fault> {
        let (source, http, last) = match self {
            Self::Fixed(keys) => return Ok(keys.clone()),
            Self::Asked { source, http, last } => (source, http, last),
        };
        let mut last = last.lock().await;
        let now = clock::now();
        if let Some(known) = last.as_ref().filter(|known| now + MARGIN < known.ends) {
            return Ok(known.keys.clone());
        }
        match source.ask(http).await {
            Ok(issued) => Ok(last.insert(issued).keys.clone()),
            // The old pair is good for a little longer; the next request asks again.
            Err(fault) => match last.as_ref().filter(|known| now < known.ends) {
                Some(known) => Ok(known.keys.clone()),
                None => Err(fault),
            },
        }
    }
}

fn with_scheme(endpoint: &str) -> String {
    if endpoint.contains("://") {
        endpoint.trim_end_matches('/').to_owned()
    } else {
        format!("https://{endpoint}")
    }
}

impl Source {
    async fn ask(&self, http: &reqwest::Client) -> Result<Temporary, Fault> {
        let issued = match self {
            Self::ServiceAccount {
                sts,
                role,
                provider,
                token_file,
            } => assume(http, sts, role, provider, token_file).await?,
            Self::Machine { metadata, role } => of_machine(http, metadata, role.as_deref()).await?,
        };
        Ok(Temporary {
            keys: Keys {
                id: issued.access_key_id,
                secret: Hidden::new(issued.access_key_secret),
                token: Some(Hidden::new(issued.security_token)),
            },
            ends: issued.expiration,
        })
    }
}

async fn assume(
    http: &reqwest::Client,
    sts: &str,
    role: &str,
    provider: &str,
    token_file: &str,
) -> Result<Issued, Fault> {
    let token = tokio::fs::read_to_string(token_file).await.map_err(|error| {
        Fault::new(
            Class::Credentials,
            format!("the service account's token cannot be read: {error}"),
        )
    })?;
    let censor = Censor::new([token.trim()]);
    let time = clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let fields = [
        ("Action", "AssumeRoleWithOIDC"),
        ("Format", "JSON"),
        ("Version", "2015-04-01"),
        ("RoleArn", role),
        ("OIDCProviderArn", provider),
        ("OIDCToken", token.trim()),
        ("RoleSessionName", "etcd-operator"),
        ("Timestamp", &time),
        ("SignatureNonce", &clock::token()),
    ];
    let pairs = fields.map(|(name, value)| format!("{name}={}", crate::key::percent(value, false)));
    let request = http
        .post(format!("{sts}/"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(pairs.join("&"));
    let answer = send(request, &censor).await?;
    let assumed: Assumed = parse(&answer)?;
    Ok(assumed.credentials)
}

async fn of_machine(http: &reqwest::Client, metadata: &str, role: Option<&str>) -> Result<Issued, Fault> {
    let censor = Censor::default();
    let request = http
        .put(format!("{metadata}/latest/api/token"))
        .header("x-aliyun-ecs-metadata-token-ttl-seconds", "21600");
    // Machines of old have no such token and need none.
    let token = send(request, &censor).await.ok();
    let get = |path: String| {
        let request = http.get(format!(
            "{metadata}/latest/meta-data/ram/security-credentials/{path}"
        ));
        match &token {
            Some(token) => request.header("x-aliyun-ecs-metadata-token", token),
            None => request,
        }
    };
    let role = match role {
        Some(role) => role.to_owned(),
        None => send(get(String::new()), &censor).await?.trim().to_owned(),
    };
    let answer = send(get(crate::key::percent(&role, false)), &censor).await?;
    parse(&answer)
}

async fn send(request: reqwest::RequestBuilder, censor: &Censor) -> Result<String, Fault> {
    let answer = async {
        let response = request.send().await?;
        let status = response.status().as_u16();
        Ok::<_, reqwest::Error>((status, response.text().await?))
    };
    let (status, text) = match tokio::time::timeout(LIMIT, answer).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            let fault = net::fault(&error.without_url(), censor);
            let said = format!("no identity from the platform: {}", fault.said);
            return Err(Fault::new(Class::Credentials, said));
        }
        Err(_) => {
            return Err(Fault::new(
                Class::Credentials,
                "no identity from the platform: no answer in time",
            ));
        }
    };
    if (200..300).contains(&status) {
        return Ok(text);
    }
    let refused: Refused = serde_json::from_str(&text).unwrap_or_default();
    let refusal = Refusal {
        status,
        code: refused.code,
        message: refused.message,
        ..Refusal::default()
    };
    let said = format!("no identity from the platform: {}", refusal.fault(censor).said);
    Err(Fault::new(Class::Credentials, said))
}

/// The parser's own message would repeat what it read.
fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|_| {
        Fault::new(
            Class::Credentials,
            "the platform's answer holds no complete key pair",
        )
    })
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(keys) => f.debug_tuple("Fixed").field(keys).finish(),
            Self::Asked { source, .. } => f.debug_tuple("Asked").field(source).finish(),
        }
    }
}
