// SPDX-License-Identifier: Apache-2.0
// What all client transports have in common: XIDs, waiting, deadlines, and a connection that is made
// again and carries the same calls under the same XIDs.
//
// A derived class knows one kind of connection: it opens one, transmits calls on it, and reports
// replies and the connection's end. Everything runs on one shard.
#pragma once

#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/semaphore.hpp>
#include <verbena/protocols/rpc/client.hpp>

#include <array>
#include <coroutine>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// The base of client transports. What its users await is described by client_transport.
///
/// This holds for the tasks that a derived class implements. Lifetime: close() waits for them. Errors: what a task gives is named
/// there; none but open() lets an exception out. Shard: the client's.
class reconnecting_client : public client_transport, private exception_handler {
public:
    task<result<void>> connect() final;
    task<result<reply>> call(request& r) final;
    task<void> close() final;
    std::uint64_t connections() const noexcept final { return connections_; }
    bool answered() const noexcept final { return answered_; }
    duration time_of_a_call() const noexcept final
    {
        return options_.hard ? duration::max() : options_.timeout * (options_.retries + 1);
    }

protected:
    /// A call outstanding. Stands in a list of the derived class while that needs one.
    class outstanding : public list_hook {
    public:
        /// For a call of `owner`, which outlives it.
        explicit outstanding(reconnecting_client& owner) noexcept : timer_(owner, *this) {}
        std::uint32_t xid() const noexcept { return xid_; }

        request call;                           ///< owned here until the outcome
        std::array<std::byte, 4> record_mark{}; ///< for byte streams
        bool must_settle = false;               ///< settle() is awaited before the caller has its memory back

    private:
        friend class reconnecting_client;
        class silence final : public timer {
        public:
            silence(reconnecting_client& owner, outstanding& o) noexcept : owner_(owner), outstanding_(o) {}
            void on_timer() noexcept override { owner_.on_silence(outstanding_); }

        private:
            reconnecting_client& owner_;
            outstanding& outstanding_;
        };

        bool active_ = false;
        std::uint32_t xid_ = 0;
        unsigned tries_ = 0;
        std::uint64_t sent_ = 0;          // times
        std::uint64_t failed_before_ = 0; // failed_attempts_ when it began
        std::uint64_t sequence_ = 0;
        time_point deadline_ = time_point::max();
        time_point limit_ = time_point::max(); // of a soft call, however often the connection is made anew
        std::optional<result<reply>> outcome_;
        event done_;
        silence timer_;
    };

    /// `shard` outlives it. Opens nothing.
    reconnecting_client(reactor& shard, const client_options& options);
    ~reconnecting_client() override;

    /// The next open() goes there: an address of client_options::addresses. Nothing is open.
    virtual void go_to(std::string address) = 0;
    /// Makes a connection; transmit() is called for all calls afterwards. Completes when: there is one, or the attempt has
    /// failed, which client_options::connect_timeout bounds. On cancel: it ends, ECANCELED: close() waits for that. Errors: why
    /// there is none; an exception counts as one.
    virtual task<result<void>> open() = 0;
    /// Sends `o.call` on the open connection, now or when it can.
    virtual void transmit(outstanding& o) noexcept = 0;
    /// `o` is over, answered or not: forget it, and make sure that neither the peer nor the kernel
    /// touches its memory from now on, or set must_settle.
    virtual void retract(outstanding& o) noexcept = 0;
    /// Completes when: neither the peer nor the kernel touches the memory of `o` any more. On cancel: it goes on to its end.
    virtual task<void> settle(outstanding&) { co_return; }
    /// The connection ended; drop() follows. Completes when: no task uses it. On cancel: it goes on to its end.
    virtual task<void> quiesce() { co_return; }
    /// close(): ends the open connection politely; drop() follows. Completes when: it has ended, within bounded time. On cancel:
    /// it goes on to its end.
    virtual task<void> hang_up() { co_return; }
    /// Lets go of the connection, broken or not. Calls stay outstanding.
    virtual void drop() noexcept = 0;

    /// The open connection ended. From a poll too; drop() follows later.
    void connection_lost(const error& cause) noexcept;
    /// The call that `xid` names, or nullptr.
    outstanding* find(std::uint32_t xid) noexcept;
    /// The outcome of a call. Its caller goes on in the shard's run queue; nothing happens if it has an outcome
    /// already. On the shard, from a poll too.
    void complete(outstanding& o, result<reply> outcome) noexcept;
    /// Runs the task that `f(args...)` returns, as scope::spawn() does, until close(), which asks it to stop and joins it. An
    /// exception ends the connection, which is made again.
    template<class F, class... Args>
    void spawn(F&& f, Args&&... args)
    {
        tasks_.spawn(std::forward<F>(f), std::forward<Args>(args)...);
    }

    /// Where the client and its calls are.
    reactor& shard() noexcept { return shard_; }
    const client_options& options() const noexcept { return options_; }
    bool connected() const noexcept { return connected_; }

private:
    static constexpr std::uint32_t slot_bits = 8;
    static_assert(max_outstanding_calls == 1u << slot_bits);

    class visit;
    class until_empty;
    class patience final : public timer {
    public:
        explicit patience(reconnecting_client& owner) noexcept : owner_(owner) {}
        void on_timer() noexcept override { owner_.look_at_silence(); }

    private:
        reconnecting_client& owner_;
    };

    // exception_handler: of what spawn() runs
    void on_exception(const std::exception_ptr& e) noexcept final;
    // The procedure that a call names, as its header has it.
    struct learned {
        std::array<std::byte, 12> procedure;
        std::size_t max_reply;
        std::uint32_t max_result; // of calls with request::first_result
        unsigned unneeded = 0;    // results in a row that took a quarter of that, or less
    };
    static constexpr std::size_t max_learned = 32;
    static constexpr unsigned unneeded_in_a_row = 64;

    task<result<void>> wait_for_turn(time_point limit);
    void begin(outstanding& o, std::uint32_t index);
    void send(outstanding& o) noexcept;
    error given_up(const outstanding& o) const noexcept;
    learned* learned_of(const request& r) noexcept;
    void learn(const request& r);
    bool enlarge(request& r, std::uint32_t most_result) const noexcept;
    void note_result(const request& r, std::size_t size) noexcept;
    void start() noexcept;
    void attempt_failed(const error& why) noexcept;
    task<result<void>> try_to_open();
    task<result<void>> open_one_of(server_addresses& where);
    task<result<void>> open_at(server_addresses& where, std::string address);
    task<void> keep_connected();
    task<void> connect_while_wanted();
    void transmit_all();
    void on_silence(outstanding& o) noexcept;
    void arm(outstanding& o) noexcept;
    void fail_all(const error& cause) noexcept;
    void fail_what_another_host_may_run_again() noexcept;
    bool is_stranger(duration lasted);
    void look_at_silence() noexcept;
    void heard() noexcept;

    reactor& shard_;
    client_options options_;
    scope tasks_;
    semaphore permits_;
    std::vector<std::unique_ptr<outstanding>> slots_;
    std::vector<std::uint32_t> free_;
    std::uint32_t next_generation_;
    std::uint64_t next_sequence_ = 0;
    std::size_t inside_ = 0; ///< coroutines in call() or connect()
    std::coroutine_handle<> closer_;
    wait_mark closer_mark_;
    event lost_;
    event attempted_;
    std::string address_;        ///< of the last connection, by client_options::addresses
    bool keeps_address_ = false; ///< that one is tried first: no look-up since named others alone
    error last_error_;
    std::uint64_t failed_attempts_ = 0;
    std::vector<learned> learned_; // room for replies that calls which may be repeated needed
    std::size_t next_learned_ = 0;
    std::uint64_t connections_ = 0;
    // For the watch.
    patience patience_{*this};
    time_point last_heard_{}; ///< or when the first call went out that waits now
    std::size_t active_ = 0;
    bool told_ = false;

    unsigned without_reply_ = 0;       ///< connections in a row
    time_point first_without_reply_{}; ///< when the first of them ended
    bool answered_ = false;
    bool running_ = false;
    bool connected_ = false;
    bool closing_ = false;
    bool told_missing_ = false; ///< that the way to the server is not here, since there was a connection
};

} // namespace verbena::rpc

#pragma GCC visibility pop
