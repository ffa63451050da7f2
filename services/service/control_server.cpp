// SPDX-License-Identifier: Apache-2.0
#include "control_server.hpp"

#include "control_socket.hpp"
#include "control_work.hpp"

#include "../../core/reactor/signals_blocked.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/exception.hpp>

// Asio's macros change its types. A program that embeds this library may have other ones, and its linker would take one of
// two functions of the same name. So Asio has another name here.
#define asio verbena_control_asio
#include <asio/io_context.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <fcntl.h>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace verbena::services {

namespace {

namespace local = asio::local;

constexpr std::size_t read_size = 4096;
constexpr auto pause_after_accept = std::chrono::milliseconds(100);

} // namespace

// All but close() and the lists run on the thread.
struct control_server::core : std::enable_shared_from_this<core> {
    class shard_part;
    class connection;

    core(runtime& r, control_table c, control_options o)
        : rt(r),
          commands(std::move(c)),
          options(std::move(o)),
          where(std::in_place, options.path),
          acceptor(io),
          retry(io)
    {
        acceptor.assign(local::stream_protocol(), ::fcntl(where->listener(), F_DUPFD_CLOEXEC, 0));
    }
    void accept();
    void take(local::stream_protocol::socket peer);
    bool admits(local::stream_protocol::socket& peer);
    void end();

    runtime& rt;
    const control_table commands;
    const control_options options;
    asio::io_context io{1};
    std::optional<control_socket> where; // until end()
    local::stream_protocol::acceptor acceptor;
    asio::steady_timer retry;
    bool accepts = false; // or will, when `retry` is over
    log_limiter refusals_logged;
    std::list<std::shared_ptr<connection>> connections;
    std::thread thread;
    work_threads works;
};

// What one command lists of one shard. It goes there with a request and comes back with rows. The list itself is made, used and
// destroyed on the shard. Whoever gives this up does not wait for it: a list that is on the shard ends there when the shard comes to
// it, and one that is not is sent there to end.
class control_server::core::shard_part final : public remote_message,
                                               public deferred,
                                               public std::enable_shared_from_this<shard_part> {
public:
    struct outcome {
        std::vector<control_row> rows;
        bool more = false;
        std::string failure;
    };

    shard_part(std::shared_ptr<core> c, shard& s, std::shared_ptr<const control_request> r)
        : core_(std::move(c)), shard_(s), request_(std::move(r)), patience_(core_->io)
    {
    }
    unsigned shard_index() const noexcept { return shard_.index(); }

    /// For rows; `answered` or `silent` will be called on the control thread, once.
    void ask(std::function<void()> answered, std::function<void()> silent)
    {
        answered_ = std::move(answered);
        ++round_;
        patience_.expires_after(core_->options.patience);
        // Cancelled too late, it is called without an error all the same.
        patience_.async_wait(
            [weak = weak_from_this(), silent = std::move(silent), round = round_](asio::error_code e) {
                const auto self = weak.lock();
                if (e || !self || !self->answered_ || self->round_ != round)
                    return;
                self->give_up();
                silent();
            });
        send(place::at_the_shard);
    }
    /// Of the last ask().
    outcome& answer() noexcept { return outcome_; }
    void give_up()
    {
        answered_ = nullptr;
        patience_.cancel();
        const std::scoped_lock lock(mutex_);
        if (place_ == place::at_home && has_list_)
            go(place::given_up);
        else if (place_ == place::at_the_shard)
            place_ = place::given_up;
    }

private:
    enum class place : std::uint8_t {
        at_home,
        at_the_shard,
        given_up, ///< at the shard, whose list ends there; nobody waits for it
    };

    void send(place next)
    {
        const std::scoped_lock lock(mutex_);
        go(next);
    }
    void go(place next)
    {
        place_ = next;
        self_ = shared_from_this();
        shard_.reactor().post_remote(*this);
    }
    // On the shard.
    void deliver() noexcept override { shard_.reactor().post(static_cast<deferred&>(*this)); }
    void run() noexcept override
    {
        outcome got;
        if (is_wanted())
            ask_list(got);
        const std::shared_ptr<shard_part> self = std::move(self_);
        const std::scoped_lock lock(mutex_);
        if (place_ == place::given_up) {
            list_.reset();
            has_list_ = false;
            return;
        }
        has_list_ = list_ != nullptr;
        outcome_ = std::move(got);
        place_ = place::at_home;
        try {
            asio::post(core_->io, [weak = std::weak_ptr(self)] {
                if (const auto part = weak.lock(); part && part->answered_) {
                    part->patience_.cancel();
                    std::exchange(part->answered_, nullptr)();
                }
            });
        } catch (const std::exception&) { // no memory: then the patience ends
        }
    }
    bool is_wanted() noexcept
    {
        const std::scoped_lock lock(mutex_);
        return place_ != place::given_up;
    }
    void ask_list(outcome& got) noexcept
    {
        try {
            if (!began_) {
                began_ = true;
                list_ = request_->command->list(shard_, request_->arguments);
            }
            got.more = list_ && list_->next(got.rows, rows_of_a_part);
        } catch (...) {
            got = {};
            got.failure = "the list ended by an exception";
            try {
                got.failure += ": " + std::string(what_of(std::current_exception()));
            } catch (const std::exception&) {
            }
        }
        if (!got.more)
            list_.reset();
    }

    const std::shared_ptr<core> core_;
    shard& shard_;
    const std::shared_ptr<const control_request> request_;
    asio::steady_timer patience_;
    // The control thread's.
    std::function<void()> answered_;
    std::uint64_t round_ = 0; // of ask()
    std::mutex mutex_;        // of what follows, but what only the shard has while it is there
    place place_ = place::at_home;
    bool has_list_ = false;
    outcome outcome_;
    std::shared_ptr<shard_part> self_; // while it is at the shard
    // The shard's.
    std::unique_ptr<control_list> list_;
    bool began_ = false;
};

// One peer: its requests are answered one after the other, in their order. Nothing is read while an answer is under way,
// and a shard is asked for more when the rows before have gone to the peer.
class control_server::core::connection final : public std::enable_shared_from_this<connection> {
public:
    connection(std::shared_ptr<core> c, local::stream_protocol::socket peer)
        : core_(std::move(c)), socket_(std::move(peer)), idle_(core_->io), beat_(core_->io)
    {
    }
    void start()
    {
        note_progress();
        next_request();
    }
    /// Tells a peer that is not served, and ends.
    void refuse(const control_refusal& why)
    {
        note_progress();
        last_ = true;
        say(control_error(why));
    }
    void end()
    {
        if (ended_)
            return;
        ended_ = true;
        const auto self = shared_from_this();
        core_->connections.remove(self);
        for (const auto& part : parts_)
            part->give_up();
        parts_.clear();
        work_.reset();
        idle_.cancel();
        beat_.cancel();
        asio::error_code ignored;
        static_cast<void>(socket_.close(ignored));
        do_what_follows();
    }

private:
    // Of a module or a program, which may throw.
    void do_what_follows() noexcept
    {
        const auto then = std::exchange(afterwards_, nullptr);
        if (!then)
            return;
        try {
            then();
        } catch (...) {
            log(log_level::error, "control", "what follows an answer ended by an exception");
        }
    }
    void note_progress()
    {
        if (ended_)
            return;
        idle_.expires_after(core_->options.idle);
        idle_.async_wait([weak = weak_from_this()](asio::error_code e) {
            if (const auto self = weak.lock(); !e && self)
                self->is_idle();
        });
    }
    void is_idle()
    {
        if (waiting_for_ != 0 || work_) // shards, which have a patience of their own, or what may take long
            note_progress();
        else
            end();
    }

    // One answer at a time is put together, and the next when it has gone.
    bool is_free() const noexcept { return !ended_ && !answering_ && !writing_ && !last_; }
    void next_request()
    {
        while (is_free()) {
            const std::size_t line = in_.find('\n');
            if (line == std::string::npos)
                break;
            const std::string request = in_.substr(0, line);
            in_.erase(0, line + 1);
            serve(request);
        }
        if (!is_free())
            return;
        if (in_.size() > max_control_line || (is_whole_ && !in_.empty())) {
            last_ = true;
            say(control_error({"bad_request", is_whole_ ? "the last request does not end in a line feed"
                                                        : "a request has more than " +
                                                              std::to_string(max_control_line) + " bytes"}));
        } else if (is_whole_) {
            end();
        } else {
            read();
        }
    }
    void read()
    {
        socket_.async_read_some(asio::buffer(part_),
                                [self = shared_from_this()](asio::error_code e, std::size_t n) {
                                    if (self->ended_)
                                        return;
                                    if (e && e != asio::error::eof)
                                        return self->end();
                                    self->is_whole_ = bool(e);
                                    self->in_.append(self->part_, n);
                                    self->note_progress();
                                    self->next_request();
                                });
    }

    void serve(const std::string& line)
    {
        auto read = read_control_request(line, core_->commands);
        if (const auto* why = std::get_if<control_refusal>(&read))
            return say(control_error(*why));
        request_ = std::make_shared<const control_request>(std::move(std::get<control_request>(read)));
        const control_command& c = *request_->command;
        ended_parts_ = {};
        if (c.work)
            return begin_work(c);
        control_answer own;
        try {
            if (c.answer)
                own = c.answer(request_->arguments);
        } catch (...) {
            return say(control_error({"failed", std::string(what_of(std::current_exception()))}));
        }
        answering_ = true;
        take_answer(std::move(own));
        out_ += control_head(c);
        if (c.list) {
            for (std::size_t i = 0; i < core_->rt.size(); ++i) {
                shard& s = core_->rt.at(i);
                parts_.push_back(std::make_shared<shard_part>(core_->shared_from_this(), s, request_));
                ask(parts_.back());
            }
        }
        flush();
    }
    void take_answer(control_answer own)
    {
        rows_ = std::move(own.rows);
        rows_said_ = 0;
        afterwards_ = std::move(own.afterwards);
    }
    void begin_work(const control_command& c)
    {
        auto begun = core_->works.begin(request_, [core = core_.get(), weak = weak_from_this()] {
            try {
                asio::post(core->io, [weak] {
                    if (const auto self = weak.lock())
                        self->look_at_work();
                });
            } catch (const std::exception&) { // no memory: the next beat sees it
            }
        });
        if (const auto* why = std::get_if<control_refusal>(&begun))
            return say(control_error(*why));
        log(log_level::info, "control", "an operator's command", {{"command", told_of(*request_)}});
        answering_ = true;
        take_answer({});
        work_ = std::move(std::get<0>(begun));
        out_ += control_head(c);
        flush();
        await_work();
    }
    void await_work()
    {
        beat_.expires_after(core_->options.beat);
        beat_.async_wait([weak = weak_from_this()](asio::error_code e) {
            const auto self = weak.lock();
            if (e || !self || !self->work_)
                return;
            self->look_at_work();
            if (!self->work_)
                return;
            // One that does not read is told nothing more until it does.
            if (!self->writing_)
                self->say(control_patience(std::chrono::duration_cast<std::chrono::seconds>(
                    std::chrono::steady_clock::now() - self->work_->since)));
            self->await_work();
        });
    }
    void look_at_work()
    {
        if (ended_ || !work_ || !work_->done.load(std::memory_order_acquire))
            return;
        const auto done = std::exchange(work_, nullptr);
        beat_.cancel();
        if (done->failure) {
            answering_ = false;
            out_ += control_error({"failed", *done->failure});
        } else {
            take_answer(std::move(done->answer));
        }
        flush();
    }
    void ask(const std::shared_ptr<shard_part>& part)
    {
        ++waiting_for_;
        part->ask(
            [weak = weak_from_this(), part = part.get()] {
                if (const auto self = weak.lock())
                    self->heard(*part);
            },
            [weak = weak_from_this(), part = part.get()] {
                if (const auto self = weak.lock())
                    self->is_silent(*part);
            });
    }
    void heard(shard_part& part)
    {
        --waiting_for_;
        shard_part::outcome got = std::move(part.answer());
        if (!got.rows.empty())
            out_ += control_rows(*request_->command, got.rows);
        if (!got.failure.empty())
            ended_parts_.failures.push_back({part.shard_index(), got.failure});
        if (got.more)
            hungry_.push_back(&part);
        flush();
    }
    void is_silent(shard_part& part)
    {
        --waiting_for_;
        ended_parts_.silent.push_back(part.shard_index());
        flush();
    }

    void say(const std::string& line)
    {
        out_ += line;
        flush();
    }
    // Writes what there is, and when it has gone gets more.
    void flush()
    {
        if (writing_ || ended_)
            return;
        if (out_.empty())
            refill();
        if (out_.empty() || ended_)
            return;
        writing_ = true;
        sending_.swap(out_);
        asio::async_write(socket_, asio::buffer(sending_),
                          [self = shared_from_this()](asio::error_code e, std::size_t) {
                              self->writing_ = false;
                              self->sending_.clear();
                              if (self->ended_)
                                  return;
                              if (e)
                                  return self->end();
                              self->note_progress();
                              self->written();
                          });
    }
    void written()
    {
        if (answering_ || !out_.empty())
            return flush();
        do_what_follows();
        if (last_)
            return end();
        next_request();
    }
    void refill()
    {
        if (!answering_ || work_)
            return;
        if (rows_said_ < rows_.size()) {
            const std::size_t n = std::min(rows_of_a_part, rows_.size() - rows_said_);
            out_ += control_rows(*request_->command, std::span(rows_).subspan(rows_said_, n));
            rows_said_ += n;
            return;
        }
        for (shard_part* const part : std::exchange(hungry_, {})) {
            const auto one = std::ranges::find(parts_, part, &std::shared_ptr<shard_part>::get);
            ask(*one);
        }
        if (waiting_for_ != 0)
            return;
        std::ranges::sort(ended_parts_.silent);
        out_ += control_tail(ended_parts_);
        answering_ = false;
        parts_.clear();
        rows_.clear();
    }

    const std::shared_ptr<core> core_;
    local::stream_protocol::socket socket_;
    asio::steady_timer idle_;
    asio::steady_timer beat_;
    char part_[read_size];
    std::string in_;      // at most max_control_line and read_size
    std::string out_;     // at most a part of each shard
    std::string sending_; // likewise
    bool writing_ = false;
    bool is_whole_ = false; // the peer sends no more
    bool last_ = false;     // it ends when that is written
    bool ended_ = false;
    // The answer under way.
    bool answering_ = false;
    std::shared_ptr<const control_request> request_;
    std::shared_ptr<control_work> work_; // that it waits for
    std::vector<control_row> rows_;
    std::size_t rows_said_ = 0;
    std::function<void()> afterwards_;
    std::vector<std::shared_ptr<shard_part>> parts_;
    std::vector<shard_part*> hungry_; // that have more
    std::size_t waiting_for_ = 0;     // of parts_
    control_end ended_parts_;
};

void control_server::core::accept()
{
    accepts = true;
    acceptor.async_accept(
        [self = shared_from_this()](asio::error_code e, local::stream_protocol::socket peer) {
            self->accepts = false;
            if (!self->acceptor.is_open())
                return;
            if (!e) {
                self->take(std::move(peer));
                return self->accept();
            }
            log_limited(self->refusals_logged, log_level::warning, "control", "no connection can be taken",
                        {{"cause", e.message()}});
            self->retry.expires_after(pause_after_accept);
            self->accepts = true;
            self->retry.async_wait([self](asio::error_code stopped) {
                self->accepts = false;
                if (!stopped && self->acceptor.is_open())
                    self->accept();
            });
        });
}

// The mode of the file is a first bar; somebody may have changed that.
bool control_server::core::admits(local::stream_protocol::socket& peer)
{
    ucred who{};
    socklen_t size = sizeof who;
    if (::getsockopt(peer.native_handle(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
        return false;
    if (who.uid == 0 || who.uid == ::geteuid())
        return true;
    log_limited(refusals_logged, log_level::warning, "control", "a user was refused", {{"uid", who.uid}});
    return false;
}

void control_server::core::take(local::stream_protocol::socket peer)
{
    try {
        const bool admitted = admits(peer);
        const bool full = connections.size() >= options.max_connections;
        if (connections.size() >= 2 * options.max_connections) // of those who are told, too
            return;
        const auto made = std::make_shared<connection>(shared_from_this(), std::move(peer));
        connections.push_back(made);
        if (!admitted)
            made->refuse({"refused", "only root and the daemon's own user may use this socket"});
        else if (full)
            made->refuse({"busy", "there are " + std::to_string(options.max_connections) +
                                      " connections, as many as may be: end one of them"});
        else
            made->start();
    } catch (const std::exception& e) {
        log_limited(refusals_logged, log_level::warning, "control", "no connection can be taken",
                    {{"cause", e.what()}});
    }
}

// Lists that a shard keeps keep this object: others may have the path all the same.
void control_server::core::end()
{
    asio::error_code ignored;
    static_cast<void>(acceptor.close(ignored));
    where.reset();
    retry.cancel();
    works.stop();
    while (!connections.empty()) {
        const auto one = connections.front();
        one->end();
    }
}

bool has_control_server() noexcept { return true; }

control_server::control_server(runtime& rt, control_table commands, control_options o)
    : core_(std::make_shared<core>(rt, std::move(commands), std::move(o)))
{
    const detail::signals_blocked blocked; // they are for whoever runs the service
    try {
        core_->thread = std::thread([c = core_.get()] {
            for (bool again = true; again;) {
                again = false;
                try {
                    if (!c->accepts && c->acceptor.is_open())
                        c->accept();
                    c->io.run();
                } catch (const std::exception& e) { // no memory: that costs what was under way
                    log(log_level::error, "control", "an exception ended a request",
                        {{"exception", e.what()}});
                    again = true;
                }
            }
        });
    } catch (const std::system_error& e) {
        throw std::system_error(
            e.code(), "the control socket gets no thread; raise the limit of threads (ulimit -u, TasksMax=)");
    }
}

control_server::~control_server() { finish(); }

void control_server::close() noexcept
{
    if (!core_->thread.joinable())
        return;
    asio::post(core_->io, [c = core_] { c->end(); });
    core_->thread.join();
}

void control_server::finish() noexcept
{
    close();
    core_->works.finish();
}

std::vector<std::string> control_server::works() const { return core_->works.under_way(); }

const std::string& control_server::path() const noexcept { return core_->options.path; }

} // namespace verbena::services
