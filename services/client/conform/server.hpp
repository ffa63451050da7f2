// SPDX-License-Identifier: Apache-2.0
// The end that does as it is asked: `verbena conform --listen`.
#pragma once

#include "end.hpp"
#include "rpc_server.hpp"

#include <verbena/core/task/scope.hpp>

#include <map>

namespace verbena::conform {

/// Serves connections of `verbena conform`, several at once.
class server {
public:
    /// `description`: what request::describe is answered with.
    server(verbs::context& c, buffer_pool& buffers, std::string description)
        : context_(c), rpc_(c, buffers), description_(std::move(description))
    {
    }
    /// Each has 10 MiB of memory. A run of `verbena conform` has up to ten at once.
    static constexpr std::size_t max_sessions = 32;
    /// Until the connection over which a client described itself ends, if `once`; else for ever.
    task<void> run(verbs::listener& where, bool once);

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
    task<void> serve(std::unique_ptr<verbs::connect_request> r);
    static task<void> refuse(verbs::connect_request& r, const greeting& with);
    task<void> talk(session& s);
    task<void> answer(session& s, const message& m);
    task<message> take_numbered(session& s, std::uint64_t count);
    void note_end(session& s, std::uint64_t id);

    verbs::context& context_;
    rpc_server rpc_;
    std::string description_;
    std::map<std::uint64_t, std::uint64_t> fates_; // by id of the connection
    verbs::listener* listener_ = nullptr;
    bool once_ = false;
    std::size_t sessions_ = 0;
};

} // namespace verbena::conform
