// SPDX-License-Identifier: Apache-2.0
// rpc::server_name: the name of a server, looked up anew where a client has no connection at the address that it had last.
// rpc::connect() has one; clients that are made by hand are given one in client_options::addresses.
#pragma once

#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/rpc/client.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// Finds the addresses of "HOST:PORT". It may block, since it is called on a thread of its own kind, one call at a time for each
/// server_name; it must not touch what is a shard's. What it refers to outlives the shard: a call of it that has begun can't be
/// recalled, and may return after the client and its server_name have gone. One that has not begun by then is not made.
/// net::resolve() is one.
using name_look_up = std::function<result<std::vector<net::endpoint>>(const std::string& name)>;

/// A server by its name. A look-up that fails, finds nothing or takes too long leaves the addresses that the last one found, so that
/// a server is reached while its name server is not. An address in digits is no question.
class server_name final : public server_addresses {
public:
    /// Addresses of a name; further ones are left out.
    static constexpr std::size_t max_addresses = 16;
    /// How long a look-up is waited for while addresses of the last one are known.
    static constexpr duration patience = std::chrono::seconds(1);

    /// `name` is "HOST:PORT", as net::resolve() takes it. `limit` is how long a look-up is waited for, `patience` at most while addresses
    /// are known. One that takes longer goes on by itself. The next find() waits for the same one if it still does; what was
    /// found since is not taken, as it may be old. `look_up` is empty for the system's resolver, and kept. Of the shard,
    /// and outlives the client that it is given to.
    explicit server_name(reactor& shard, std::string name, duration limit = std::chrono::seconds(10),
                         name_look_up look_up = {});
    ~server_name() override;
    server_name(const server_name&) = delete;

    /// As server_addresses says. Errors: those of the look-up; EADDRNOTAVAIL: it found nothing; ETIMEDOUT after `limit`; EAGAIN where there is no thread for it.
    task<result<std::vector<std::string>>> find() override;
    void connected(const std::string& address) noexcept override;

    const std::string& name() const noexcept { return name_; }
    /// Whether any address is known, of the last look-up that found some.
    bool found() const noexcept { return !known_.empty(); }
    /// The one of its addresses that there was a connection to last; empty: none yet.
    const std::string& address() const noexcept { return address_; }

private:
    struct question;
    static task<void> ask(std::shared_ptr<question> q);
    static task<void> tell_of_wait(std::shared_ptr<question> q);
    static task<result<void>> answer_to(std::shared_ptr<question> q);
    result<std::vector<std::string>> known_or(const error& e) const;

    reactor& shard_;
    const std::string name_;
    const duration limit_;
    const name_look_up look_up_;
    std::shared_ptr<question> question_; // under way
    std::vector<std::string> known_;
    std::string address_;
};

} // namespace verbena::rpc

#pragma GCC visibility pop
