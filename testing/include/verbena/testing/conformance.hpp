// SPDX-License-Identifier: Apache-2.0
// Whether a provider of verbs does what core/verbs promises: named checks, and a way to run each. For tests of providers, in
// any test framework or in none. docs/howto/conform.md.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace verbena::testing::conformance {
class check_time; // the kit's own
}

#pragma GCC visibility push(default)

namespace verbena::testing::conformance {

/// The provider under test. Its author derives from this. Used on one thread.
class subject {
public:
    virtual ~subject() = default;
    /// Turns both ends, by a real clock or a virtual one. It outlives all contexts, and it isn't running when a check begins.
    virtual reactor& shard() noexcept = 0;
    /// A context on shard(), owned by the caller. A check makes two that reach each other, "server" and "client", and destroys
    /// them at its end; it may make others of these names after that. Errors: whatever it throws fails the check.
    virtual std::unique_ptr<verbs::context> make_context(const std::string& name) = 0;
    /// Where a check listens, as verbs::context::listen() takes it: "127.0.0.1:0".
    virtual std::string address() const = 0;
    /// True of hardware and of drivers, which carry requests out while shard() does not turn. Then a few checks allow what such a
    /// device may do in between.
    virtual bool works_by_itself() const noexcept { return false; }

private:
    friend class check_time;
    time_point check_ends_ = time_point::max(); // the end of the time of the check that runs, if one does
};

struct target;

/// One promise of verbs, or a few that belong together.
struct check {
    const char* name;  ///< plain words, no two alike: "a fence waits for reads"
    const char* group; ///< "connections", "messages", "queues", "rights" or "two ends"
    /// Exactly one of these two is set. run() calls them. Both throw `failure` or `not_supported` (conformance/end.hpp).
    void (*in_one_program)(subject& p); ///< has both ends in hand
    /// Talks to a server (conformance/server.hpp), which may be on another host. Completes when: the check is over. On cancel: its waits
    /// end, and it fails. Errors: those two, thrown. Lifetime: `t` outlives the task. Shard: that of the target's context.
    task<void> (*from_one_end)(target& t);
};

/// All of the kit's, group by group. A check asks query() what the provider can do. A check in one program states the opposite
/// where the provider can't, so that it always checks something. One that talks to a server is not_supported then.
std::span<const check> checks() noexcept;
/// Those of them that talk to a server, in the order in which `verbena conform` runs them.
std::span<const check> checks_from_one_end() noexcept;

/// How a check ended.
enum class verdict : std::uint8_t {
    passed,
    failed,
    not_supported, ///< query() says that the provider can't; of checks in group "two ends" alone
};
/// "passed", "failed" or "not supported". A literal.
std::string_view to_string(verdict v) noexcept;
/// What run() found.
struct outcome {
    conformance::verdict verdict = verdict::passed; ///< how it ended
    std::string reason; ///< empty if passed; else what was found, or what is not supported
};

/// Runs one check and returns when nothing of it is left. The whole check has 240 s of the shard's clock. When they are over, its
/// tasks are asked to stop, and it has failed, whatever it finds. A provider that breaks its promises makes checks fail; one
/// that touches memory which is not its own, or never ends a task, breaks the program all the same. Nothing is thrown. On the
/// thread of `p.shard()`, outside of its turns.
outcome run(const check& c, subject& p);

/// `name` as test frameworks want it: letters and digits, and one underscore in place of whatever stands between them.
std::string as_identifier(std::string_view name);

} // namespace verbena::testing::conformance

#pragma GCC visibility pop
