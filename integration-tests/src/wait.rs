//! Waiting for conditions. Nothing in these tests waits for time to pass in the hope that something
//! has happened by then; what is waited for is looked at, until a deadline, and the failure says what
//! was last seen.

use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, sleep, timeout_at};

/// Pause between two looks at a condition.
const POLL: Duration = Duration::from_millis(20);

/// Looks again and again until `look` finds what it is after; its error is what it saw instead.
///
/// # Errors
/// At the deadline, with what was last seen.
pub async fn wait_for<T>(
    what: &str,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> Result<T, String>,
) -> anyhow::Result<T> {
    let until = Instant::now() + deadline;
    let mut last = "nothing".to_owned();
    loop {
        match timeout_at(until, look()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(seen)) => last = seen,
            Err(_) => bail!("{what}: a look did not end within {deadline:?}; last saw: {last}"),
        }
        if Instant::now() + POLL >= until {
            bail!("{what}: not within {deadline:?}; last saw: {last}");
        }
        sleep(POLL).await;
    }
}

/// Lets a fault last. Time is the stimulus here: nothing is expected to have happened afterwards.
pub async fn hold(duration: Duration) {
    sleep(duration).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_look_stands_in_the_failure() -> anyhow::Result<()> {
        let mut looks = 0;
        let deadline = Duration::from_millis(100);
        let outcome = wait_for("a miracle", deadline, async || {
            looks += 1;
            Err::<(), _>(format!("look {looks}"))
        });
        let failure = outcome.await.expect_err("it cannot happen").to_string();
        assert!(looks > 1, "{looks}");
        assert!(failure.contains("a miracle") && failure.contains(&format!("look {looks}")));
        wait_for("nothing", deadline, async || Ok(())).await
    }

    #[tokio::test]
    async fn a_look_that_hangs_ends_at_the_deadline() {
        let deadline = Duration::from_millis(50);
        let hangs = async || std::future::pending::<Result<(), String>>().await;
        let failure = wait_for("an answer", deadline, hangs).await.expect_err("it hangs");
        assert!(failure.to_string().contains("did not end"), "{failure}");
    }
}
