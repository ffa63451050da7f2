// SPDX-License-Identifier: Apache-2.0
// raw_verbs ADDRESS PORT: one queue pair that does what the lines of its input say, right or wrong, by librdmacm and
// libibverbs alone. tests/lab/guest/raw_peer.py drives it. An answer is one line, as is each of:
//
//   connect RECEIVES HEX      connects with so many receives posted and this private data: `up HEX`, or `down EVENT STATUS`
//   send HEX                  posts a Send: `posted`
//   memory SIZE               registers memory that the peer may read and write: `memory KEY ADDRESS`
//   forget KEY                takes that registration back; the memory stays: `forgotten`
//   write|read KEY ADDRESS    one-sided, 16 octets of the peer's memory: `posted`; if it can't be, the program ends
//   wait MILLISECONDS         what happens next: `received HEX`, `done STATUS`, `event NAME`, or `nothing`
//   silence COUNT HEX         posts so many Sends, and when they are done answers no request of the peer any more (rxe): `silent`
//   disconnect                `posted`
//   listen PORT               for the connection request of somebody, which `reject` answers: `listening`
//   reject MILLISECONDS       `rejected`, or `nothing` if none came
//   crowd COUNT MILLISECONDS  COUNT connection requests at once, by other queue pairs, which go when the time is over:
//                             `crowd ESTABLISHED REJECTED OTHER`
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <iostream>
#include <map>
#include <memory>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;

constexpr std::size_t message_size = 4096;
constexpr std::uint32_t depth = 1024;
constexpr int patience = 20'000; // milliseconds for a step of connection set-up
constexpr int all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

[[noreturn]] void fail(const char* what)
{
    std::fprintf(stderr, "raw_verbs: %s: %s\n", what, std::strerror(errno));
    std::exit(1);
}

std::string hex(const void* data, std::size_t size)
{
    static constexpr char digits[] = "0123456789abcdef";
    std::string out;
    for (std::size_t i = 0; i < size; ++i) {
        const auto octet = static_cast<const unsigned char*>(data)[i];
        out += digits[octet >> 4];
        out += digits[octet & 15];
    }
    return out;
}

std::vector<char> from_hex(const std::string& text)
{
    std::vector<char> out;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2)
        out.push_back(static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16)));
    return out;
}

struct registered {
    registered(ibv_pd* domain, std::size_t size)
        : bytes(size), region(ibv_reg_mr(domain, bytes.data(), size, all_access))
    {
        if (region == nullptr)
            fail("ibv_reg_mr");
    }
    ~registered()
    {
        if (region != nullptr)
            ibv_dereg_mr(region);
    }
    registered(const registered&) = delete;
    std::vector<char> bytes;
    ibv_mr* region;
};

class peer {
public:
    peer(const char* address, const char* port) : channel_(rdma_create_event_channel())
    {
        addrinfo hints{};
        hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
        if (channel_ == nullptr || getaddrinfo(address, port, &hints, &to_) != 0)
            fail("address");
        id_ = resolved();
        pair(id_);
    }

    std::string connect(std::uint32_t receives, const std::vector<char>& data)
    {
        for (std::uint32_t i = 0; i < receives; ++i)
            post_receive();
        // librdmacm lets no Read leave towards a server that takes none, which leaves the server's answer to one unseen. So it is told
        // of no queue pair until this one is up.
        ibv_qp* const mine = std::exchange(id_->qp, nullptr);
        request(id_, data, mine->qp_num);
        std::string came = "down none 0";
        with_event(patience, [&](const rdma_cm_event& e) {
            if (e.event == RDMA_CM_EVENT_CONNECT_RESPONSE)
                establish(mine);
            if (e.event == RDMA_CM_EVENT_ESTABLISHED || e.event == RDMA_CM_EVENT_CONNECT_RESPONSE)
                came = "up " + hex(e.param.conn.private_data, e.param.conn.private_data_len);
            else
                came = std::string("down ") + rdma_event_str(e.event) + " " + std::to_string(e.status);
        });
        id_->qp = mine;
        if (came.starts_with("down")) {
            ibv_qp_attr a{};
            a.qp_state = IBV_QPS_ERR;
            (void)ibv_modify_qp(mine, &a, IBV_QP_STATE);
        }
        return came;
    }
    void send(const std::vector<char>& data)
    {
        auto& m = buffer(std::max<std::size_t>(data.size(), 1));
        std::copy(data.begin(), data.end(), m.bytes.begin());
        (void)post(IBV_WR_SEND, m, data.size(), 0, 0); // on a queue pair that has ended, wait() tells
    }
    void one_sided(ibv_wr_opcode op, std::uint32_t key, std::uint64_t at)
    {
        errno = std::abs(post(op, buffer(16), 16, key, at)); // libsiw's are negative
        if (errno != 0)
            fail("RDMA Write or Read");
    }
    std::string memory(std::size_t size)
    {
        auto& m = buffer(size);
        return "memory " + std::to_string(m.region->rkey) + " " +
               std::to_string(reinterpret_cast<std::uintptr_t>(m.bytes.data()));
    }
    void forget(std::uint32_t key)
    {
        for (auto& m : buffers_) {
            if (m->region != nullptr && m->region->rkey == key) {
                ibv_dereg_mr(m->region);
                m->region = nullptr;
            }
        }
    }
    void silence(std::uint64_t count, const std::vector<char>& data)
    {
        for (std::uint64_t i = 0; i < count; ++i)
            send(data);
        ibv_wc c{};
        for (std::uint64_t done = 0; done < count;)
            done += ibv_poll_cq(id_->send_cq, 1, &c) == 1 && receives_.count(c.wr_id) == 0 ? 1u : 0u;
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RESET;
        if (ibv_modify_qp(id_->qp, &a, IBV_QP_STATE) != 0)
            fail("ibv_modify_qp");
    }
    void disconnect() { rdma_disconnect(id_); }

    void listen(std::uint16_t port)
    {
        rdma_cm_id* id = nullptr;
        sockaddr_in at = *reinterpret_cast<const sockaddr_in*>(to_->ai_addr);
        at.sin_port = htons(port);
        if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0 ||
            rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&at)) != 0 || rdma_listen(id, 1) != 0)
            fail("rdma_listen");
    }
    bool reject(int milliseconds)
    {
        bool rejected = false;
        with_event(milliseconds, [&](const rdma_cm_event& e) {
            rejected = e.event == RDMA_CM_EVENT_CONNECT_REQUEST && rdma_reject(e.id, nullptr, 0) == 0;
        });
        return rejected;
    }

    std::string wait(int milliseconds)
    {
        const auto end = clock_type::now() + std::chrono::milliseconds(milliseconds);
        for (;;) {
            ibv_wc c{};
            if (ibv_poll_cq(id_->send_cq, 1, &c) == 1) {
                const auto found = receives_.find(c.wr_id);
                if (found == receives_.end())
                    return std::string("done ") + one_word(ibv_wc_status_str(c.status));
                const auto taken = found->second;
                receives_.erase(found);
                if (c.status == IBV_WC_SUCCESS) {
                    post_receive();
                    return "received " + hex(taken->bytes.data(), c.byte_len);
                }
                continue; // flushed
            }
            // What was done before an event came is told before it.
            if (!event_.empty())
                return "event " + std::exchange(event_, {});
            if (clock_type::now() >= end)
                return "nothing";
            with_event(1, [&](const rdma_cm_event& e) { event_ = rdma_event_str(e.event); });
        }
    }

    std::string crowd(int count, int milliseconds)
    {
        std::vector<rdma_cm_id*> ids;
        for (int i = 0; i < count; ++i) {
            ids.push_back(resolved());
            pair(ids.back());
        }
        for (rdma_cm_id* id : ids)
            request(id, {}, id->qp->qp_num);
        int established = 0, rejected = 0, other = 0;
        const auto end = clock_type::now() + std::chrono::milliseconds(milliseconds);
        while (clock_type::now() < end) {
            with_event(100, [&](const rdma_cm_event& e) {
                if (e.event == RDMA_CM_EVENT_ESTABLISHED)
                    ++established;
                else if (e.event == RDMA_CM_EVENT_REJECTED)
                    ++rejected;
                else if (e.event != RDMA_CM_EVENT_DISCONNECTED && e.event != RDMA_CM_EVENT_TIMEWAIT_EXIT)
                    ++other;
            });
        }
        for (rdma_cm_id* id : ids) {
            rdma_destroy_qp(id);
            rdma_destroy_id(id);
        }
        return "crowd " + std::to_string(established) + " " + std::to_string(rejected) + " " +
               std::to_string(other);
    }

private:
    static std::string one_word(std::string text)
    {
        for (char& c : text)
            c = c == ' ' ? '_' : c;
        return text;
    }
    registered& buffer(std::size_t size)
    {
        buffers_.push_back(std::make_shared<registered>(id_->pd, size));
        return *buffers_.back();
    }
    /// Calls `seen` with the next event, if one comes; it is acknowledged afterwards.
    template<class Function>
    bool with_event(int milliseconds, Function seen)
    {
        pollfd ready{channel_->fd, POLLIN, 0};
        rdma_cm_event* e = nullptr;
        if (::poll(&ready, 1, milliseconds) != 1 || rdma_get_cm_event(channel_, &e) != 0)
            return false;
        seen(*e);
        rdma_ack_cm_event(e);
        return true;
    }
    rdma_cm_id* resolved()
    {
        rdma_cm_id* id = nullptr;
        bool ok = rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) == 0 &&
                  rdma_resolve_addr(id, nullptr, to_->ai_addr, patience) == 0;
        ok = ok && step(RDMA_CM_EVENT_ADDR_RESOLVED) && rdma_resolve_route(id, patience) == 0 &&
             step(RDMA_CM_EVENT_ROUTE_RESOLVED);
        if (!ok)
            fail("no RDMA device leads there");
        return id;
    }
    bool step(rdma_cm_event_type wanted)
    {
        bool good = false;
        with_event(patience, [&](const rdma_cm_event& e) { good = e.event == wanted; });
        return good;
    }
    static void pair(rdma_cm_id* id)
    {
        ibv_cq* queue = ibv_create_cq(id->verbs, 2 * depth, nullptr, nullptr, 0);
        ibv_qp_init_attr o{};
        o.send_cq = o.recv_cq = queue;
        o.qp_type = IBV_QPT_RC;
        o.sq_sig_all = 1;
        o.cap = {depth, depth, 1, 1, 0};
        if (queue == nullptr || rdma_create_qp(id, nullptr, &o) != 0)
            fail("rdma_create_qp");
        id->send_cq = id->recv_cq = queue;
    }
    /// What librdmacm does with the queue pair of an identifier when the server has accepted (not on iWARP, whose devices do it).
    void establish(ibv_qp* mine)
    {
        constexpr int known = 2 * IBV_QP_DEST_QPN - 1; // the kernel adds some that it does not take back
        for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
            ibv_qp_attr a{};
            int mask = 0;
            a.qp_state = state;
            if (rdma_init_qp_attr(id_, &a, &mask) != 0)
                fail("rdma_init_qp_attr");
            a.max_rd_atomic = 1;
            if (ibv_modify_qp(mine, &a, mask & known) != 0)
                fail("ibv_modify_qp");
        }
        if (rdma_establish(id_) != 0)
            fail("rdma_establish");
    }
    static void request(rdma_cm_id* id, const std::vector<char>& data, std::uint32_t number)
    {
        rdma_conn_param p{};
        p.private_data = data.data();
        p.private_data_len = static_cast<std::uint8_t>(data.size());
        p.responder_resources = 16;
        p.initiator_depth = 1;
        p.qp_num = number;
        p.retry_count = 1; // some of what it does is never answered
        p.rnr_retry_count = 6;
        if (rdma_connect(id, &p) != 0)
            fail("rdma_connect");
    }
    void post_receive()
    {
        auto m = std::make_shared<registered>(id_->pd, message_size);
        ibv_sge s{reinterpret_cast<std::uintptr_t>(m->bytes.data()), message_size, m->region->lkey};
        ibv_recv_wr w{};
        ibv_recv_wr* bad = nullptr;
        w.wr_id = ++next_;
        w.sg_list = &s;
        w.num_sge = 1;
        if (ibv_post_recv(id_->qp, &w, &bad) == 0)
            receives_[w.wr_id] = m;
    }
    int post(ibv_wr_opcode op, registered& m, std::size_t size, std::uint32_t key, std::uint64_t at)
    {
        ibv_sge s{reinterpret_cast<std::uintptr_t>(m.bytes.data()), static_cast<std::uint32_t>(size),
                  m.region->lkey};
        ibv_send_wr w{};
        ibv_send_wr* bad = nullptr;
        w.wr_id = ++next_;
        w.sg_list = &s;
        w.num_sge = 1;
        w.opcode = op;
        w.wr.rdma.remote_addr = at;
        w.wr.rdma.rkey = key;
        return ibv_post_send(id_->qp, &w, &bad);
    }

    rdma_event_channel* channel_;
    addrinfo* to_ = nullptr;
    rdma_cm_id* id_ = nullptr;
    std::uint64_t next_ = 0;
    std::string event_; // that wait() has not told yet
    std::vector<std::shared_ptr<registered>> buffers_;
    std::map<std::uint64_t, std::shared_ptr<registered>> receives_;
};

std::string answer(peer& p, std::istringstream& line)
{
    std::string verb, data;
    std::uint64_t a = 0, b = 0;
    line >> verb;
    if (verb == "connect") {
        line >> a >> data;
        return p.connect(static_cast<std::uint32_t>(a), from_hex(data));
    }
    if (verb == "send") {
        line >> data;
        p.send(from_hex(data));
        return "posted";
    }
    if (verb == "silence") {
        line >> a >> data;
        p.silence(a, from_hex(data));
        return "silent";
    }
    line >> a >> b;
    if (verb == "memory")
        return p.memory(a);
    if (verb == "wait")
        return p.wait(static_cast<int>(a));
    if (verb == "crowd")
        return p.crowd(static_cast<int>(a), static_cast<int>(b));
    if (verb == "forget") {
        p.forget(static_cast<std::uint32_t>(a));
        return "forgotten";
    }
    if (verb == "listen") {
        p.listen(static_cast<std::uint16_t>(a));
        return "listening";
    }
    if (verb == "reject")
        return p.reject(static_cast<int>(a)) ? "rejected" : "nothing";
    if (verb == "disconnect")
        p.disconnect();
    else if (verb == "write" || verb == "read")
        p.one_sided(verb == "write" ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, static_cast<std::uint32_t>(a), b);
    else
        return "what?";
    return "posted";
}

} // namespace

int main(int argc, char** argv)
{
    if (argc != 3) {
        std::fprintf(stderr, "usage: raw_verbs ADDRESS PORT\n");
        return 2;
    }
    std::signal(SIGPIPE, SIG_IGN); // siw sends in the thread that posts
    peer p(argv[1], argv[2]);
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::cout << answer(p, words) << std::endl;
    }
    std::_Exit(0); // as a process does that dies: the kernel takes everything down
}
