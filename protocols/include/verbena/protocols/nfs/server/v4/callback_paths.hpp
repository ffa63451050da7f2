// SPDX-License-Identifier: Apache-2.0
// The ways to clients of minor version 0 (7530 10.2): where each is called, whether that is known to work, and the connection.
// docs/internals/nfs4_v40.md.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/nfs/server/state_home.hpp>
#include <verbena/protocols/nfs/server/v4/back_channel.hpp>
#include <verbena/protocols/nfs/server/v4/sessions.hpp>
#include <verbena/protocols/nfs/wire/v4/state_operations.hpp>
#include <verbena/protocols/nfs/wire/v4/universal_address.hpp>
#include <verbena/protocols/rpc/client.hpp>
#include <verbena/protocols/rpc/principal.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// Where a client is called, and as whom. A value.
struct callback_place {
    /// What SETCLIENTID by `who` from the host `from` says; nothing where the client is not to be called: another netid, an address that can't
    /// be read, or one that is not the host's own. Any thread.
    static std::optional<callback_place> of(const SETCLIENTID4args& args, const rpc::principal& who,
                                            std::string_view from);
    /// As whom the client is called there.
    callback_identity identity() const;
    /// Whether calls go to the same address, program and user.
    bool is_same(const callback_place& other) const;

    std::uint32_t program = 0;      ///< of the callbacks; the client's choice
    std::uint32_t ident = 0;        ///< callback_ident
    universal_address address;      ///< where it listens
    bool has_user = false;          ///< else calls are not signed
    std::uint32_t uid = 0, gid = 0; ///< as whom calls are signed, if has_user
};

/// Makes connections to clients. Used on the state layer's shard.
class callback_connector {
public:
    /// A caller of that address, which connects on use and is closed before it goes; it belongs to the state layer's shard. Errors: any, where
    /// there is no way to make one.
    virtual result<std::unique_ptr<rpc::client_transport>> make(const universal_address& to) = 0;

protected:
    ~callback_connector() = default;
};

/// Over TCP, from `home`, which outlives it. Errors of make(): EPROTONOSUPPORT for RDMA.
class stream_callback_connector final : public callback_connector {
public:
    /// Connections are made on `home`.
    explicit stream_callback_connector(const shard& home) noexcept : home_(home) {}
    result<std::unique_ptr<rpc::client_transport>> make(const universal_address& to) override;

private:
    const shard& home_;
};

/// The way to one client, at one place. Shard-local: of the state layer's shard.
class callback_path {
public:
    /// Whether the client can be called, as far as is known.
    enum class verdict : std::uint8_t {
        unknown, ///< no try has ended
        up,      ///< the last call was answered, or CB_NULL, where no call was unanswered before
        down,
    };
    /// What the connection of the path does.
    enum class link_state : std::uint8_t { none, opening, open, closing };

    /// The client `of`, called at `at`. No connection yet.
    callback_path(files::client_id of, const callback_place& at) : client(of), place(at) {}
    const files::client_id client; ///< in the state layer
    const callback_place place;    ///< never changes: another place is another path
    /// On the shard.
    verdict is() const noexcept { return verdict_; }
    link_state link() const noexcept { return link_; }

private:
    friend class callback_paths;
    class idle_timer final : public timer {
    public:
        explicit idle_timer(callback_path& p) noexcept : path_(p) {}
        void on_timer() noexcept override { path_.close_link(); }

    private:
        callback_path& path_;
    };

    // Nobody begins a call over it any more.
    void close_link() noexcept
    {
        if (link_ == link_state::open)
            link_ = link_state::closing;
        over_.set();
    }

    verdict verdict_ = verdict::unknown;
    link_state link_ = link_state::none;
    bool gone_ = false;                             ///< the client is called elsewhere, or is no more
    bool is_tried_ = false;                         ///< its connection has one of the places for tries
    bool owes_answer_ = false;                      ///< the last call, CB_NULL aside, was not answered
    std::string peer_;                              ///< whose limits it shares
    std::unique_ptr<rpc::client_transport> caller_; ///< while it is open
    std::size_t under_way_ = 0;                     ///< calls, of those that said begin()
    std::size_t waiting_ = 0;                       ///< in begin(), for the link
    unsigned failures_ = 0;                         ///< in a row
    time_point next_try_{};
    /// Since when calls have had no connection, and the last one that had none.
    std::optional<time_point> waits_since_, waited_;
    event changed_; ///< the link
    event unused_;  ///< no call is under way
    event over_;    ///< the connection is to be closed
    idle_timer idle_{*this};
};

/// All of them. Shard-local, as they are, but for its counters.
class callback_paths {
public:
    /// No try and no call takes longer, nor a fourth of the time that a client has for a recall: it is to hear in time that it can't be called.
    static constexpr duration patience = std::chrono::seconds(10);
    /// How long a try or a call takes at most now.
    duration limit() const noexcept;
    static constexpr duration idle_time = std::chrono::seconds(10); ///< a connection without a call ends then
    /// after the first try that failed; doubled by each
    static constexpr duration first_pause = std::chrono::seconds(1);
    static constexpr duration last_pause = std::chrono::minutes(5); ///< the longest of them
    /// A client whose calls find no free place for so long hears CB_PATH_DOWN, and gets no delegation. No longer than an eighth of the time
    /// that it has for a recall, for the same reason.
    static constexpr duration longest_wait = std::chrono::seconds(5);
    /// How long a call waits for a free place at most now.
    duration wait_limit() const noexcept;
    /// Tries of one peer: at once, and each second.
    static constexpr unsigned most_tries = 64;
    static constexpr unsigned tries_each_second = 10; ///< when most_tries are used up

    /// Of `limits` those of connections count.
    void set_limits(const changeable_session_limits& limits) noexcept
    {
        static_cast<changeable_session_limits&>(limits_) = limits;
    }
    /// `state` outlives it. No client is called before connect_by().
    callback_paths(state_home& state, const session_limits& limits) noexcept : state_(state), limits_(limits)
    {
    }
    /// From now on connections are made by `how`, which outlives this; before that no client is called.
    void connect_by(callback_connector& how) noexcept { connector_ = &how; }
    /// Whether connect_by() was called.
    bool calls_anybody() const noexcept { return connector_ != nullptr; }

    /// The client is called there, or, without a place, not at all. A path that is there already and good stays.
    void set(files::client_id client, const std::optional<callback_place>& place);
    /// The client is no more: its path ends with the last call that uses it.
    void forget(files::client_id client) noexcept;
    /// Nothing where the client is not called.
    std::shared_ptr<callback_path> find(files::client_id client) const;
    /// What is not up is tried, if it may be.
    void nudge(files::client_id client);
    /// Whether a client that has delegations hears CB_PATH_DOWN.
    bool is_down(files::client_id client) const;
    /// Completes when: the first try has ended, or `most` has passed. On cancel: it ends. Errors: none. Lifetime: this outlives it. Shard: the state
    /// layer's.
    task<void> settle(files::client_id client, duration most);

    /// A connection of the path is there for whoever calls over it, until that says end().
    /// Completes when: it is there: true; or none can be had now, or not until `until`: false. On cancel: it ends, false. Errors: none. Lifetime: it
    /// keeps the path. Shard: the state layer's.
    task<bool> begin(std::shared_ptr<callback_path> p, time_point until);
    void end(callback_path& p) noexcept;
    /// Between these two.
    static rpc::client_transport& caller(callback_path& p) noexcept { return *p.caller_; }
    /// The client has answered a call, whatever it said.
    void note_answer(callback_path& p) noexcept;
    /// There was no answer, or none that makes sense: the path is down, unless that is known or the client is called elsewhere by now.
    void note_failure(callback_path& p) noexcept;

    /// Makes the connections. One runs as long as the server serves.
    /// Completes when: its task is stopped, and all connections are closed. On cancel: it ends. Errors: none. Lifetime: this outlives it.
    /// Shard: the state layer's.
    task<void> run();
    /// What is known of peers that have no path, and is of no more use, goes.
    void tidy();

    /// Any thread.
    const gauge& paths(callback_path::verdict v) const noexcept { return by_verdict_[std::size_t(v)]; }
    gauge connections; ///< that are open, or being made or closed
    counter tries;     ///< CB_NULL that was to go out
    counter failures;  ///< of these tries

private:
    struct peer_entry {
        std::size_t paths = 0, links = 0;
        std::size_t trying = 0;      // of the links
        unsigned tries = most_tries; // that are left
        time_point counted{};        // when that was so
    };
    time_point now() const noexcept { return state_.now(); }
    bool may_connect(callback_path& p);
    void count_tries(peer_entry& of) const noexcept;
    void end_idle_one(const std::string* of_peer) noexcept;
    void start(const std::shared_ptr<callback_path>& p);
    void give_place_back(callback_path& p) noexcept;
    void end_try(callback_path& p) noexcept;
    task<result<void>> wait_settled(std::shared_ptr<callback_path> p);
    task<result<void>> wait_changed(std::shared_ptr<callback_path> p);
    task<void> serve(std::shared_ptr<callback_path> p);
    task<result<void>> open(callback_path* p);
    task<result<void>> open_unless_over(callback_path* p);
    bool is_starved(const callback_path& p) const noexcept;
    void note_wait(callback_path& p) noexcept;
    void note_open(callback_path& p) noexcept;
    void note_down(callback_path& p) noexcept;
    void set_verdict(callback_path& p, callback_path::verdict v) noexcept;
    void set_callable(const callback_path& p, bool callable) noexcept;

    state_home& state_;
    session_limits limits_;
    std::array<gauge, 3> by_verdict_;
    callback_connector* connector_ = nullptr;
    scope* tasks_ = nullptr; // while run() runs
    std::unordered_map<files::client_id, std::shared_ptr<callback_path>> paths_;
    std::map<std::string, peer_entry> peers_;
    std::size_t trying_ = 0;                          // of the links, those of paths that are not up
    std::list<std::shared_ptr<callback_path>> links_; // that have a connection, those opened last at the end
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
