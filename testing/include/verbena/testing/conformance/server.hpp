// SPDX-License-Identifier: Apache-2.0
// The end that does as it is asked, as `verbena conform --listen` does.
#pragma once

#include <verbena/core/task/scope.hpp>
#include <verbena/testing/conformance/end.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#pragma GCC visibility push(default)

namespace verbena::testing::conformance {

/// What a server says of itself, and what becomes of peers that are not its own.
struct server_options {
    std::string description; ///< what request::describe is answered with
    /// Asked for each peer whose private data are not of this kit: true if it took the peer. Otherwise the peer is rejected, if
    /// it is still there.
    std::function<bool(std::unique_ptr<verbs::connect_request>&)> others;
    /// Told whom the server refuses and whose connection failed, in a line for people.
    std::function<void(const std::string&)> complain;
};

/// Serves connections of targets (conformance/target.hpp), several at once. On the shard of the context, which outlives this.
class server {
public:
    /// On the shard of `c`.
    server(verbs::context& c, server_options o) : context_(c), options_(std::move(o)) {}
    /// Each has 10 MiB of memory. A run of all checks has up to ten at once.
    static constexpr std::size_t max_sessions = 32;
    /// Serves who comes to `where`.
    ///
    /// Completes when: the listener is closed and no connection is left. With `once`, the server closes the listener when a
    /// connection over which it was asked for its description has ended. On cancel: it takes no more peers, and the sessions that
    /// stand go on; stop() ends them. Errors: none that a peer can cause: what is thrown in a session, such as std::bad_alloc, ends that
    /// session, and `complain` hears of it. What the listener throws is rethrown when all sessions have ended. Lifetime: the server and
    /// `where` outlive the task. Shard: that of the context.
    task<void> run(verbs::listener& where, bool once);
    /// Ends all connections soon, without closing the listener. Shard only.
    void stop() noexcept;

private:
    static constexpr std::size_t max_fates = 256;
    struct session {
        explicit session(verbs::context& c) : link(c) {}
        end link;
        verbs::grant opened;
        std::span<std::byte> memory;
        std::uint64_t before = 0; // sum of it
        bool main = false;        // it asked for the description
    };
    class place; // of a session, among max_sessions
    class last;  // closes the listener behind a session
    class lost;  // hears of what leaves a session
    class runs;  // running_ is set
    task<void> serve(std::unique_ptr<verbs::connect_request> r);
    static task<void> refuse(verbs::connect_request& r, const greeting& with);
    void complain(const verbs::connect_request& r, const std::string& of) const;
    task<void> talk(session& s);
    task<void> answer(session& s, const message& m);
    task<message> take_numbered(session& s, std::uint64_t count);
    void note_end(session& s, std::uint64_t id);

    verbs::context& context_;
    server_options options_;
    std::map<std::uint64_t, std::uint64_t> fates_; // by id of the connection
    verbs::listener* listener_ = nullptr;
    bool once_ = false;
    bool stopping_ = false;
    scope* running_ = nullptr; // of the sessions
    std::size_t sessions_ = 0;
};

} // namespace verbena::testing::conformance

#pragma GCC visibility pop
