// SPDX-License-Identifier: Apache-2.0
// receive_ways PORT watch|poll|multishot CONNECTIONS: takes so many connections and answers their NULL calls, asleep
// whenever there are none. It receives as the streams of this project do (watch: an io_watch on a reactor, which tries
// while there is something and else arms a poll), or on a ring without a reactor: by a poll for each receive, or by
// multishot receives into provided buffers. Ends with the connections; prints one line of JSON with
// what it cost. All calls are those of rpc_load, of one size; what is compared is only how bytes come.
#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/io_watch.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <liburing.h>
#include <memory>
#include <poll.h>
#include <span>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <vector>

using namespace verbena;

namespace {

constexpr std::size_t call_size = 44;
constexpr std::size_t reply_size = 28;
constexpr std::size_t receive_size = 16384;

std::uint64_t calls = 0;

/// Takes calls out of what came and sends their replies with one system call.
class responder {
public:
    explicit responder(net::unique_fd socket) : socket_(std::move(socket)) {}
    int fd() const noexcept { return socket_.get(); }
    void take(std::span<const std::byte> in)
    {
        std::byte* to = out_.data();
        if (partial_size_ != 0) {
            const std::size_t n = std::min(in.size(), call_size - partial_size_);
            std::memcpy(partial_.data() + partial_size_, in.data(), n);
            partial_size_ += n;
            in = in.subspan(n);
            if (partial_size_ < call_size)
                return;
            to = answer(partial_.data(), to);
            partial_size_ = 0;
        }
        for (; in.size() >= call_size; in = in.subspan(call_size))
            to = answer(in.data(), to);
        std::memcpy(partial_.data(), in.data(), in.size());
        partial_size_ = in.size();
        if (to != out_.data())
            (void)!::send(fd(), out_.data(), static_cast<std::size_t>(to - out_.data()), MSG_NOSIGNAL);
    }

private:
    static std::byte* answer(const std::byte* call, std::byte* to) noexcept
    {
        const std::uint32_t words[] = {0x80000018, xdr::load_u32(call + 4), 1, 0, 0, 0, 0};
        for (std::size_t i = 0; i < std::size(words); ++i)
            xdr::store_u32(to + 4 * i, words[i]);
        ++calls;
        return to + reply_size;
    }
    net::unique_fd socket_;
    std::array<std::byte, call_size> partial_;
    std::size_t partial_size_ = 0;
    std::array<std::byte, receive_size> out_; // replies are shorter than their calls
};

class watched final : public io_watch {
public:
    watched(reactor& r, net::unique_fd socket, std::size_t& open)
        : io_watch(r, socket.get()), responder_(std::move(socket)), open_(open)
    {
        want_read(true);
    }
    bool on_readable() noexcept override
    {
        static std::array<std::byte, receive_size> in;
        const ssize_t n = ::recv(fd(), in.data(), in.size(), MSG_DONTWAIT);
        if (n > 0) {
            responder_.take({in.data(), static_cast<std::size_t>(n)});
            return true;
        }
        if (n < 0 && errno == EAGAIN)
            return false;
        stop();
        if (--open_ == 0)
            shard().stop();
        return true;
    }
    void on_writable() noexcept override {}

private:
    responder responder_;
    std::size_t& open_;
};

int serve_watched(std::vector<net::unique_fd> sockets)
{
    reactor_options options;
    options.policy = wait_policy::event;
    auto shard = reactor::create(options);
    if (!shard)
        return 1;
    std::size_t open = sockets.size();
    std::vector<std::unique_ptr<watched>> all;
    for (auto& s : sockets)
        all.push_back(std::make_unique<watched>(**shard, std::move(s), open));
    (*shard)->run();
    return 0;
}

bool open_ring(io_uring& ring)
{
    constexpr unsigned flags =
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    return ::io_uring_queue_init(1024, &ring, flags) == 0;
}

int serve_polled(std::vector<net::unique_fd> sockets)
{
    io_uring ring;
    if (!open_ring(ring))
        return 1;
    std::vector<std::unique_ptr<responder>> all;
    const auto arm = [&](std::size_t index) {
        io_uring_sqe* sqe = ::io_uring_get_sqe(&ring); // fewer than entries: each is armed once a turn
        io_uring_prep_poll_add(sqe, all[index]->fd(), POLLIN | POLLRDHUP);
        sqe->user_data = index;
    };
    for (auto& s : sockets) {
        all.push_back(std::make_unique<responder>(std::move(s)));
        arm(all.size() - 1);
    }
    static std::array<std::byte, receive_size> in;
    for (std::size_t open = all.size(); open != 0;) {
        ::io_uring_submit_and_wait(&ring, 1);
        io_uring_cqe* batch[256];
        const unsigned count = ::io_uring_peek_batch_cqe(&ring, batch, 256);
        for (unsigned i = 0; i < count; ++i) {
            const auto index = static_cast<std::size_t>(batch[i]->user_data);
            const ssize_t n = ::recv(all[index]->fd(), in.data(), in.size(), MSG_DONTWAIT);
            if (n > 0)
                all[index]->take({in.data(), static_cast<std::size_t>(n)});
            if (n > 0 || (n < 0 && errno == EAGAIN))
                arm(index);
            else
                --open;
        }
        ::io_uring_cq_advance(&ring, count);
    }
    ::io_uring_queue_exit(&ring);
    return 0;
}

int serve_multishot(std::vector<net::unique_fd> sockets)
{
    constexpr unsigned buffers = 256;
    constexpr int group = 0;
    io_uring ring;
    if (!open_ring(ring))
        return 1;
    std::vector<std::byte> memory(buffers * receive_size);
    const std::size_t ring_size = buffers * sizeof(io_uring_buf);
    auto* provided =
        static_cast<io_uring_buf_ring*>(std::aligned_alloc(4096, (ring_size + 4095) / 4096 * 4096));
    std::memset(provided, 0, ring_size);
    io_uring_buf_reg registration{};
    registration.ring_addr = reinterpret_cast<std::uintptr_t>(provided);
    registration.ring_entries = buffers;
    registration.bgid = group;
    if (::io_uring_register_buf_ring(&ring, &registration, 0) != 0)
        return 1;
    const int mask = io_uring_buf_ring_mask(buffers);
    for (unsigned i = 0; i < buffers; ++i)
        io_uring_buf_ring_add(provided, memory.data() + i * receive_size, receive_size,
                              static_cast<unsigned short>(i), mask, static_cast<int>(i));
    io_uring_buf_ring_advance(provided, buffers);

    std::vector<std::unique_ptr<responder>> all;
    const auto receive = [&](std::size_t index) {
        io_uring_sqe* sqe = ::io_uring_get_sqe(&ring);
        if (sqe == nullptr) {
            ::io_uring_submit(&ring);
            sqe = ::io_uring_get_sqe(&ring);
        }
        io_uring_prep_recv_multishot(sqe, all[index]->fd(), nullptr, 0, 0);
        sqe->flags |= IOSQE_BUFFER_SELECT;
        sqe->buf_group = group;
        sqe->user_data = index;
    };
    for (auto& s : sockets) {
        all.push_back(std::make_unique<responder>(std::move(s)));
        receive(all.size() - 1);
    }
    for (std::size_t open = all.size(); open != 0;) {
        ::io_uring_submit_and_wait(&ring, 1);
        io_uring_cqe* batch[256];
        const unsigned count = ::io_uring_peek_batch_cqe(&ring, batch, 256);
        int given = 0;
        for (unsigned i = 0; i < count; ++i) {
            const io_uring_cqe& c = *batch[i];
            const auto index = static_cast<std::size_t>(c.user_data);
            if ((c.flags & IORING_CQE_F_BUFFER) != 0) {
                const unsigned id = c.flags >> IORING_CQE_BUFFER_SHIFT;
                std::byte* const data = memory.data() + id * receive_size;
                if (c.res > 0)
                    all[index]->take({data, static_cast<std::size_t>(c.res)});
                io_uring_buf_ring_add(provided, data, receive_size, static_cast<unsigned short>(id), mask,
                                      given++);
            }
            const bool ended = c.res == 0 || (c.res < 0 && c.res != -ENOBUFS);
            if (ended)
                --open;
            else if ((c.flags & IORING_CQE_F_MORE) == 0)
                receive(index);
        }
        io_uring_buf_ring_advance(provided, given);
        ::io_uring_cq_advance(&ring, count);
    }
    ::io_uring_queue_exit(&ring);
    std::free(provided);
    return 0;
}

double seconds(const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) / 1e6; }

} // namespace

int main(int argc, char** argv)
{
    const std::string way = argc == 4 ? argv[2] : "";
    const auto serve = way == "watch"       ? serve_watched
                       : way == "poll"      ? serve_polled
                       : way == "multishot" ? serve_multishot
                                            : nullptr;
    const int connections = argc == 4 ? std::atoi(argv[3]) : 0;
    if (serve == nullptr || connections < 1 || connections > 512) {
        std::fprintf(stderr, "usage: receive_ways PORT watch|poll|multishot CONNECTIONS (1 to 512)\n");
        return 2;
    }
    const auto where = net::endpoint::parse(std::string("127.0.0.1:") + argv[1]);
    auto listener = where ? net::open_listener(*where) : result<net::unique_fd>(where.error());
    if (!listener) {
        std::fprintf(stderr, "receive_ways: %s\n", listener.error().message().c_str());
        return 1;
    }
    std::vector<net::unique_fd> sockets;
    while (sockets.size() < static_cast<std::size_t>(connections)) {
        pollfd ready{listener->get(), POLLIN, 0};
        ::poll(&ready, 1, -1);
        if (auto next = net::accept(listener->get())) {
            (void)net::set_no_delay(next->fd.get());
            sockets.push_back(std::move(next->fd));
        }
    }
    const int status =
        way == "watch" ? serve_watched(std::move(sockets)) : serve_multishot(std::move(sockets));
    if (status != 0) {
        std::fprintf(stderr, "receive_ways: io_uring refuses what this needs\n");
        return status;
    }
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    std::printf("{\"way\": \"%s\", \"calls\": %llu, \"cpu_seconds\": %.3f}\n", way.c_str(),
                static_cast<unsigned long long>(calls), seconds(used.ru_utime) + seconds(used.ru_stime));
    return 0;
}
