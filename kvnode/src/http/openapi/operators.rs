//! The calls of operators about plans, moves, settings and partitions.

use utoipa::openapi::path::{HttpMethod, ParameterIn};

use super::{Call, Document, LOCATE};

const ORDER_PROBLEMS: &[&str] = &["400", "403", "404", "409", "412", "415", "503", "504"];

const READ: Call = Call { problems: &["400", "503"], ..LOCATE };
const ORDER: Call = Call { method: HttpMethod::Post, problems: ORDER_PROBLEMS, ..LOCATE };

/// All of them.
pub fn calls() -> Vec<Call> {
    vec![
        Call {
            path: "/v1/admin/partitions",
            summary: "How much the partitions that this node leads hold and are asked for",
            parameters: &[
                ("replicas", ParameterIn::Query, "`true`: also replicas that do not lead"),
                ("cluster", ParameterIn::Query, "`true`: of all nodes that answer within a second"),
            ],
            success: &[("200", "One entry per replica", Document::Json("PartitionReport"))],
            ..READ
        },
        Call {
            path: "/v1/admin/plan",
            summary: "What is staged, and what it leads to, or the rule that forbids it",
            success: &[("200", "The draft", Document::Json("DraftAnswer"))],
            ..READ
        },
        Call {
            path: "/v1/admin/plan/stage",
            summary: "Stages changes, checked together with what is staged before",
            request: Document::Json("StageRequest"),
            success: &[("200", "The draft", Document::Json("DraftAnswer"))],
            ..ORDER
        },
        Call {
            path: "/v1/admin/plan/clear",
            summary: "Forgets what is staged",
            success: &[("200", "Nothing is staged", Document::Json("Done"))],
            ..ORDER
        },
        Call {
            path: "/v1/admin/plan/apply",
            summary: "Makes a plan of what is staged: a compare-and-set on epoch and digest",
            request: Document::Json("ApplyRequest"),
            success: &[("200", "It is under way", Document::Json("PlanAnswer"))],
            ..ORDER
        },
        Call {
            path: "/v1/admin/migrations",
            summary: "The plans on record with their moves, the newest first",
            success: &[("200", "The plans", Document::Json("Migrations"))],
            ..READ
        },
        Call {
            path: "/v1/admin/migrations/why",
            summary: "What a plan, or a partition's moves, wait for, and the command that helps",
            parameters: &[
                ("plan", ParameterIn::Query, "The plan; the last one, or all of a partition"),
                ("partition", ParameterIn::Query, "Only the moves of this partition"),
            ],
            success: &[("200", "The reasons", Document::Json("WhyAnswer"))],
            problems: &["400", "404", "503"],
            ..READ
        },
        Call {
            path: "/v1/admin/migrations/order",
            summary: "Pauses, resumes, cancels, rolls back or finishes a plan",
            request: Document::Json("PlanOrderRequest"),
            success: &[("200", "It is ordered", Document::Json("PlanAnswer"))],
            ..ORDER
        },
        Call {
            path: "/v1/admin/settings",
            summary: "Limits of copies, and the grace",
            success: &[("200", "The settings", Document::Json("ClusterSettings"))],
            ..READ
        },
        Call {
            path: "/v1/admin/settings",
            summary: "Changes limits of copies, or the grace; what is left out stays",
            request: Document::Json("SettingsRequest"),
            success: &[("200", "The settings", Document::Json("ClusterSettings"))],
            ..ORDER
        },
    ]
}
