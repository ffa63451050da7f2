// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rpc/kept_results.hpp>

#include <verbena/protocols/rpc/bulk.hpp>

#include <utility>

namespace verbena::rpc {

kept_results::kept_results(call& c, std::size_t start)
    : start_(start), items_(c.results().payloads().begin(), c.results().payloads().end())
{
    whole_.reserve(c.results().position());
    const auto put = [this](std::span<const std::byte> bytes) {
        whole_.insert(whole_.end(), bytes.begin(), bytes.end());
    };
    c.results().in_order(put, [&](std::size_t i) {
        items_[i].position = whole_.size() - start_;
        for (const auto piece : c.attached()[i].bytes.pieces())
            put(piece);
        whole_.resize(xdr::padded(whole_.size()));
    });
}

task<bool> answer_as_kept(call& c, std::span<const std::byte> bytes, std::span<const xdr::payload_item> items)
{
    std::size_t done = 0;
    for (const xdr::payload_item& item : items) {
        auto copied = co_await copy_payload(c, bytes.subspan(item.position, item.length));
        if (!copied)
            co_return false;
        c.results().opaque_fixed(bytes.subspan(done, item.position - 4 - done));
        c.results().note_payload(item.length);
        c.attach(std::move(*copied));
        done = item.position + xdr::padded(item.length);
    }
    c.results().opaque_fixed(bytes.subspan(done));
    co_return true;
}

} // namespace verbena::rpc
