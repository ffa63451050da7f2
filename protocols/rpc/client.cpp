// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rpc/client.hpp>

namespace verbena::rpc {

result<void> reply::decode_header()
{
    reply_header header;
    decode(results_, header);
    if (!results_.ok())
        return results_.failure();
    if (!header.success())
        return to_error(header);
    return {};
}

result<payload> reply::take(const xdr::payload_ref& ref)
{
    if (!results_.ok())
        return results_.failure();
    if (!ref.external) {
        if (chunk_offered_ && ref.length != 0)
            return error(std::errc::protocol_error,
                         "result came inline although a Write chunk was offered (RFC 8166 4.3.2)",
                         ref.length);
        if (ref.length == 0)
            return payload();
        return payload(owner_.share(), ref.inline_bytes);
    }
    if (data_.size() != ref.length)
        return error(std::errc::protocol_error, "Write chunk and result differ in length (RFC 8166 4.3.2)",
                     ref.length);
    return std::move(data_);
}

} // namespace verbena::rpc
