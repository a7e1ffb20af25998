//! `/openapi.json`: the API as this version has it, made once from a table of its calls.

mod operators;

use std::sync::LazyLock;

use bytes::Bytes;
use http::request::Parts;
use kvapi::admin::{
    ClusterStatus, InitAnswer, InitRequest, NodeInfo, PartitionReport, RingHistory, TransferAnswer,
    TransferRequest,
};
use kvapi::headers::{
    CONTENT_TYPE_DEFAULT, CONTENT_TYPE_PROBLEM, KV_CONSISTENCY, KV_PARTITION, KV_RING_EPOCH,
    KV_ROUTE, KV_SERVED_BY, KV_STALENESS_MS,
};
use kvapi::plans::{
    ApplyRequest, ClusterSettings, Done, DraftAnswer, Migrations, PlanAnswer, PlanOrderRequest,
    SettingsRequest, StageRequest, WhyAnswer,
};
use kvapi::{LocateAnswer, Problem, RingDocument};
use utoipa::OpenApi as _;
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::{
    Content, ContentBuilder, InfoBuilder, ObjectBuilder, OpenApi, PathItem, Ref, Required,
    ResponseBuilder, Type,
};

use super::app::{Answer, content};
use super::problem::{Refusal, of_query};
use super::query::Query;

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
    let json = serde_json::to_vec(&build()).expect("a document has only strings and numbers");
    Bytes::from(json)
});

/// `GET /openapi.json`.
pub fn document(head: &Parts) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    Ok(content("application/json", DOCUMENT.clone()))
}

#[derive(utoipa::OpenApi)]
#[openapi(components(schemas(
    Problem,
    RingDocument,
    LocateAnswer,
    NodeInfo,
    InitRequest,
    InitAnswer,
    ClusterStatus,
    TransferRequest,
    TransferAnswer,
    RingHistory,
    PartitionReport,
    DraftAnswer,
    StageRequest,
    Done,
    ApplyRequest,
    PlanAnswer,
    Migrations,
    WhyAnswer,
    PlanOrderRequest,
    ClusterSettings,
    SettingsRequest,
)))]
struct Schemas;

/// A body in a request or an answer.
#[derive(Clone, Copy)]
enum Document {
    None,
    /// Any bytes.
    Value,
    Text,
    /// JSON of a schema above.
    Json(&'static str),
    /// JSON without a schema.
    AnyJson,
}

/// One call of the API.
struct Call {
    method: HttpMethod,
    path: &'static str,
    summary: &'static str,
    /// Name, place and meaning; those in the path are known from it.
    parameters: &'static [(&'static str, ParameterIn, &'static str)],
    request: Document,
    success: &'static [(&'static str, &'static str, Document)],
    problems: &'static [&'static str],
}

const IF_MATCH: (&str, ParameterIn, &str) =
    ("If-Match", ParameterIn::Header, "Only if the key has this version (`\"V\"`), or any (`*`)");
const IF_NONE_MATCH_PUT: (&str, ParameterIn, &str) =
    ("If-None-Match", ParameterIn::Header, "`*`: only if the key is absent");
const IF_NONE_MATCH_GET: (&str, ParameterIn, &str) =
    ("If-None-Match", ParameterIn::Header, "Answer 304 if the version is this one (`\"V\"`)");
const ROUTE: (&str, ParameterIn, &str) =
    ("KV-Route", ParameterIn::Header, "`direct`: answer 421 instead of forwarding");
const CONSISTENCY: (&str, ParameterIn, &str) =
    ("consistency", ParameterIn::Query, "`linearizable` (default) or `stale`");

const VALUE: &[(&str, &str, Document)] =
    &[("200", "The value", Document::Value), ("304", "The version is known", Document::None)];
const WRITTEN: &[(&str, &str, Document)] = &[("204", "Done", Document::None)];
const READ_PROBLEMS: &[&str] = &["400", "404", "414", "421", "503", "504"];
const WRITE_PROBLEMS: &[&str] = &["400", "412", "414", "421", "503", "504", "507"];
const PUT_PROBLEMS: &[&str] =
    &["400", "408", "412", "413", "414", "421", "501", "503", "504", "507"];

const GET: Call = Call {
    method: HttpMethod::Get,
    path: "/v1/kv/{key}",
    summary: "Reads a key",
    parameters: &[IF_NONE_MATCH_GET, CONSISTENCY, ROUTE],
    request: Document::None,
    success: VALUE,
    problems: READ_PROBLEMS,
};
const HEAD: Call = Call {
    method: HttpMethod::Head,
    summary: "Reads a key without its value",
    success: &[("200", "As for GET, without the value", Document::None)],
    ..GET
};
const PUT: Call = Call {
    method: HttpMethod::Put,
    path: "/v1/kv/{key}",
    summary: "Stores a value, with its content type",
    parameters: &[IF_MATCH, IF_NONE_MATCH_PUT, ROUTE],
    request: Document::Value,
    success: WRITTEN,
    problems: PUT_PROBLEMS,
};
const DELETE: Call = Call {
    method: HttpMethod::Delete,
    path: "/v1/kv/{key}",
    summary: "Removes a key; it may be absent",
    parameters: &[IF_MATCH, ROUTE],
    request: Document::None,
    success: WRITTEN,
    problems: WRITE_PROBLEMS,
};
const LOCATE: Call = Call {
    method: HttpMethod::Get,
    path: "/v1/locate/{key}",
    summary: "Where a key lives, and who leads there as far as this node knows",
    parameters: &[],
    request: Document::None,
    success: &[("200", "The key's place", Document::Json("LocateAnswer"))],
    problems: &["400", "414", "503"],
};
const RING: Call = Call {
    path: "/v1/ring",
    summary: "The ring in force and the directory; canonical bytes for `Accept: application/octet-stream`",
    parameters: &[
        ("after_epoch", ParameterIn::Query, "Answer only with a later epoch than this, else 304"),
        ("wait", ParameterIn::Query, "How long to wait for one, such as `30s`"),
        ("epoch", ParameterIn::Query, "The ring of this epoch, if it is still kept"),
    ],
    success: &[
        ("200", "The ring", Document::Json("RingDocument")),
        ("304", "There is no later epoch", Document::None),
    ],
    problems: &["400", "404", "503"],
    ..LOCATE
};
const PROBE: Call = Call {
    path: "/livez",
    summary: "Whether the process runs",
    success: &[("200", "It does", Document::Text)],
    problems: &[],
    ..LOCATE
};

fn calls() -> Vec<Call> {
    let at = |path, call: Call| Call { path, ..call };
    let read = |path, summary, schema: &'static [(&str, &str, Document)], problems| Call {
        path,
        summary,
        success: schema,
        problems,
        ..LOCATE
    };
    let order = |path, summary, request, success, problems| Call {
        method: HttpMethod::Post,
        path,
        summary,
        request: Document::Json(request),
        success,
        problems,
        ..LOCATE
    };
    vec![
        GET,
        HEAD,
        PUT,
        DELETE,
        at("/v1/kv64/{key}", GET),
        at("/v1/kv64/{key}", HEAD),
        at("/v1/kv64/{key}", PUT),
        at("/v1/kv64/{key}", DELETE),
        LOCATE,
        at("/v1/locate64/{key}", LOCATE),
        RING,
        PROBE,
        Call {
            path: "/readyz",
            summary: "Whether the node serves: founded, and every local group knows a leader",
            problems: &["503"],
            ..PROBE
        },
        Call { path: "/metrics", summary: "Numbers for Prometheus", ..PROBE },
        read(
            "/version",
            "Name and version of the program",
            &[("200", "It", Document::AnyJson)],
            &[],
        ),
        read("/openapi.json", "This document", &[("200", "It", Document::AnyJson)], &[]),
        Call {
            parameters: &[("replicas", ParameterIn::Query, "`true`: the replicas one by one")],
            ..read(
                "/v1/admin/node",
                "The node about itself",
                &[("200", "What it says", Document::Json("NodeInfo"))],
                &["400"],
            )
        },
        read(
            "/v1/admin/status",
            "The cluster as this node sees it",
            &[("200", "What it sees", Document::Json("ClusterStatus"))],
            &["503"],
        ),
        read(
            "/v1/admin/ring",
            "The rings that were published",
            &[("200", "They", Document::Json("RingHistory"))],
            &["503"],
        ),
        order(
            "/v1/admin/init",
            "Founds the cluster",
            "InitRequest",
            &[("200", "It is founded", Document::Json("InitAnswer"))],
            &["400", "409", "415", "503", "504"],
        ),
        order(
            "/v1/admin/transfer",
            "Moves the leadership of a partition",
            "TransferRequest",
            &[("200", "The node leads", Document::Json("TransferAnswer"))],
            &["400", "404", "409", "415", "501", "503", "504"],
        ),
    ]
}

fn build() -> OpenApi {
    let mut document = Schemas::openapi();
    document.info = InfoBuilder::new()
        .title("ringkv")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(description()))
        .build();
    for call in calls().into_iter().chain(operators::calls()) {
        let operation = operation(&call);
        let item = document.paths.paths.remove(call.path);
        let item = match item {
            None => PathItem::new(call.method, operation),
            Some(mut item) => {
                match call.method {
                    HttpMethod::Head => item.head = Some(operation),
                    HttpMethod::Put => item.put = Some(operation),
                    HttpMethod::Delete => item.delete = Some(operation),
                    HttpMethod::Post => item.post = Some(operation),
                    _ => item.get = Some(operation),
                }
                item
            }
        };
        document.paths.paths.insert(call.path.to_owned(), item);
    }
    document
}

fn description() -> String {
    format!(
        "`{{key}}` is the rest of the path: percent-encoded raw bytes under `kv`, base64url without \
         padding under `kv64`. Every answer carries `{KV_RING_EPOCH}`; answers about a key also \
         `{KV_PARTITION}` and `{KV_SERVED_BY}`, stale ones `{KV_CONSISTENCY}` and \
         `{KV_STALENESS_MS}`. `{KV_ROUTE}: direct` asks a node not to forward. Errors are \
         problems (RFC 9457) with a stable `code` and the `outcome` of the request."
    )
}

fn operation(call: &Call) -> Operation {
    let mut operation = OperationBuilder::new().summary(Some(call.summary));
    if call.path.ends_with("{key}") {
        operation = operation.parameter(parameter("key", ParameterIn::Path, "The key"));
    }
    for (name, place, meaning) in call.parameters {
        operation = operation.parameter(parameter(name, place.clone(), meaning));
    }
    if let Some((media_type, body)) = media(call.request) {
        operation = operation.request_body(Some(request_body(media_type, body)));
    }
    for (status, meaning, body) in call.success {
        let mut response = ResponseBuilder::new().description(*meaning);
        if let Some((media_type, body)) = media(*body) {
            response = response.content(media_type, body);
        }
        operation = operation.response(*status, response);
    }
    for status in call.problems {
        let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        let response = ResponseBuilder::new()
            .description("See the problem's `code`")
            .content(CONTENT_TYPE_PROBLEM, problem);
        operation = operation.response(*status, response);
    }
    operation.build()
}

fn parameter(name: &str, place: ParameterIn, meaning: &str) -> Parameter {
    let is_required = matches!(place, ParameterIn::Path);
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(if is_required { Required::True } else { Required::False })
        .description(Some(meaning))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

fn request_body(media_type: &'static str, body: Content) -> RequestBody {
    RequestBodyBuilder::new().content(media_type, body).required(Some(Required::True)).build()
}

fn media(document: Document) -> Option<(&'static str, Content)> {
    let object = |kind| ContentBuilder::new().schema(Some(ObjectBuilder::new().schema_type(kind)));
    Some(match document {
        Document::None => return None,
        Document::Value => (CONTENT_TYPE_DEFAULT, object(Type::String).build()),
        Document::Text => ("text/plain", object(Type::String).build()),
        Document::AnyJson => ("application/json", object(Type::Object).build()),
        Document::Json(name) => {
            let schema = Ref::from_schema_name(name);
            ("application/json", ContentBuilder::new().schema(Some(schema)).build())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::route::Route;

    #[test]
    fn every_call_that_this_version_has_is_described() {
        let document: serde_json::Value = serde_json::from_slice(&DOCUMENT).expect("JSON");
        let paths = document["paths"].as_object().expect("paths");
        for (path, route) in Route::FIXED {
            let is_missing = matches!(route, Route::Scan | Route::Batch | Route::Watch);
            assert_eq!(!is_missing, paths.contains_key(path), "{path}");
        }
        for path in paths.keys() {
            let example = path.replace("{key}", "a");
            let route = Route::of(&example).expect("a route");
            let methods = paths[path].as_object().expect("methods");
            for method in methods.keys() {
                let allow = route.verbs().allow;
                assert!(allow.to_ascii_lowercase().contains(method), "{method} {path}");
            }
        }
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        let text = document.to_string();
        for reference in text.split("\"#/components/schemas/").skip(1) {
            let name = reference.split('"').next().expect("a name");
            assert!(schemas.contains_key(name), "{name} is referred to and not there");
        }
    }
}
