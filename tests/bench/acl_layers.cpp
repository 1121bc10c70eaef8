// SPDX-License-Identifier: Apache-2.0
// Runs a layer of Arm Compute Library on one thread: a product of 256x256x256, or a convolution of
// 3x3 over 64 channels of 28x28. Arguments: product or convolution, element type, calls.
#include <arm_compute/core/Types.h>
#include <arm_compute/runtime/NEON/NEFunctions.h>
#include <arm_compute/runtime/Scheduler.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
using namespace arm_compute;
static int refused(const Status &status)
{
    std::fprintf(stderr, "%s\n", status.error_description().c_str());
    return 4;
}
int main(int argc, char **argv)
{
    const std::string layer = argv[1], kind = argv[2];
    Scheduler::get().set_num_threads(1);
    const bool real = kind == "float32" || kind == "float16";
    const DataType type = kind == "float32"   ? DataType::F32
                          : kind == "float16" ? DataType::F16
                          : kind == "int8"    ? DataType::QASYMM8_SIGNED
                                              : DataType::QASYMM8;
    const bool product = layer == "product";
    const auto info = [&](const TensorShape &shape, float scale, int zero) {
        TensorInfo made(shape, 1, type);
        if (!real) made.set_quantization_info(QuantizationInfo(scale, zero));
        if (!product) made.set_data_layout(DataLayout::NHWC);
        return made;
    };
    const TensorShape square(256U, 256U), image(64U, 28U, 28U, 1U), taps(64U, 3U, 3U, 64U);
    Tensor x, w, y;
    x.allocator()->init(info(product ? square : image, 0.02f, 3));
    w.allocator()->init(info(product ? square : taps, 0.01f, 0));
    y.allocator()->init(info(product ? square : image, 0.3f, 3));
    std::unique_ptr<IFunction> function;
    if (!product) {
        const PadStrideInfo border(1, 1, 1, 1);
        const Status status = NEConvolutionLayer::validate(
            x.info(), w.info(), nullptr, y.info(), border);
        if (!status) return refused(status);
        auto made = std::make_unique<NEConvolutionLayer>();
        made->configure(&x, &w, nullptr, &y, border);
        function = std::move(made);
    } else if (real) {
        const GEMMInfo once(false, false, true);
        const Status status = NEGEMM::validate(x.info(), w.info(), nullptr, y.info(), 1, 0, once);
        if (!status) return refused(status);
        auto made = std::make_unique<NEGEMM>();
        made->configure(&x, &w, nullptr, &y, 1, 0, once);
        function = std::move(made);
    } else {
        FullyConnectedLayerInfo rows;
        rows.transpose_weights = false;
        const Status status =
            NEFullyConnectedLayer::validate(x.info(), w.info(), nullptr, y.info(), rows);
        if (!status) return refused(status);
        auto made = std::make_unique<NEFullyConnectedLayer>();
        made->configure(&x, &w, nullptr, &y, rows);
        function = std::move(made);
    }
    for (Tensor *tensor : {&x, &w, &y}) {
        tensor->allocator()->allocate();
        std::memset(tensor->buffer(), 1, tensor->info()->total_size());
    }
    for (int left = std::atoi(argv[argc - 1]); left; --left) function->run();
    return 0;
}
