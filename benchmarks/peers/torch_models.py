"""The models of Trireme in PyTorch, with the same parameter names, for golden values and for timing side by side."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class Conv1D(nn.Module):
    """y = x W + b with W [in, out], as GPT-2 stores it."""

    def __init__(self, nin, nout):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(nin, nout) * 0.02)
        self.bias = nn.Parameter(torch.zeros(nout))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.c_attn, self.c_proj, self.heads = Conv1D(width, 3 * width), Conv1D(width, width), heads

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (a.view(B, T, self.heads, -1).transpose(1, 2) for a in self.c_attn(x).split(C, 2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            mask = torch.ones(T, T, dtype=torch.bool).triu(1)
            y = s.masked_fill(mask, float("-inf")).softmax(-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(width, 4 * width), Conv1D(4 * width, width)
        # The library's own kernel where it has the tanh form (since 1.12), which is the faster one.
        self.act = nn.GELU(approximate="tanh") if "approximate" in nn.GELU.__init__.__code__.co_varnames else gelu

    def forward(self, x):
        return self.c_proj(self.act(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = Attention(width, heads), MLP(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """forward(tokens, targets) -> mean loss."""

    def __init__(self, layers, heads, width, context, vocab):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(vocab, width), wpe=nn.Embedding(context, width),
            h=nn.ModuleList(Block(width, heads) for _ in range(layers)), ln_f=nn.LayerNorm(width)))

    def forward(self, tokens, targets):
        t = self.transformer
        x = t.wte(tokens) + t.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in t.h:
            x = block(x)
        logits = F.linear(t.ln_f(x), t.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-100)


def conv(i, o, k, stride=1):
    return nn.Conv2d(i, o, k, stride, k // 2, bias=False)


class Basic(nn.Module):
    expansion = 1

    def __init__(self, i, width, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(i, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3), nn.BatchNorm2d(width)
        if stride != 1 or i != width:
            self.downsample = nn.Sequential(conv(i, width, 1, stride), nn.BatchNorm2d(width))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, i, width, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(i, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        if stride != 1 or i != 4 * width:
            self.downsample = nn.Sequential(conv(i, 4 * width, 1, stride), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


DEPTHS = {"resnet20": (Basic, [3, 3, 3], 16), "resnet18": (Basic, [2, 2, 2, 2], 64),
          "resnet50": (Bottleneck, [3, 4, 6, 3], 64)}


class ResNet(nn.Module):
    """forward(images NCHW, labels) -> mean loss."""

    def __init__(self, preset, channels, classes, small, width=0):
        super().__init__()
        block, depth, base = DEPTHS[preset]
        width = width or base
        self.small = small
        self.conv1 = conv(channels, width, 3) if small else conv(channels, width, 7, 2)
        self.bn1 = nn.BatchNorm2d(width)
        i = width
        self.stages = len(depth)
        for s, n in enumerate(depth):
            w = width << s
            blocks = []
            for j in range(n):
                blocks.append(block(i, w, 2 if s > 0 and j == 0 else 1))
                i = w * block.expansion
            setattr(self, f"layer{s + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(i, classes)

    def forward(self, x, labels):
        x = F.relu(self.bn1(self.conv1(x)))
        if not self.small:
            x = F.max_pool2d(x, 3, 2, 1)
        for s in range(self.stages):
            x = getattr(self, f"layer{s + 1}")(x)
        return F.cross_entropy(self.fc(x.mean((2, 3))), labels, ignore_index=-100)


class MLPNet(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x, labels):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return F.cross_entropy(self.layers[-1](x), labels, ignore_index=-100)
